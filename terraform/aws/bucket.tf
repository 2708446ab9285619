# For a team's ledger, data and runs: versioned, private, encrypted, by TLS alone, and never destroyed by accident.

resource "aws_s3_bucket" "orch" {
  bucket        = coalesce(var.bucket, "orch-${data.aws_caller_identity.here.account_id}-${var.regions[0]}")
  force_destroy = false

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_versioning" "orch" {
  bucket = aws_s3_bucket.orch.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_public_access_block" "orch" {
  bucket                  = aws_s3_bucket.orch.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "orch" {
  bucket = aws_s3_bucket.orch.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "orch" {
  bucket = aws_s3_bucket.orch.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "orch" {
  bucket     = aws_s3_bucket.orch.id
  depends_on = [aws_s3_bucket_versioning.orch]

  rule {
    id     = "old-versions"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.keep_old_days
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
}

data "aws_iam_policy_document" "bucket_guard" {
  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.orch.arn, "${aws_s3_bucket.orch.arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "orch" {
  bucket     = aws_s3_bucket.orch.id
  policy     = data.aws_iam_policy_document.bucket_guard.json
  depends_on = [aws_s3_bucket_public_access_block.orch]
}

data "aws_iam_policy_document" "bucket_use" {
  statement {
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.orch.arn]
  }

  statement {
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = [
      "${aws_s3_bucket.orch.arn}/blobs/*",
      "${aws_s3_bucket.orch.arn}/ledgers/*",
      "${aws_s3_bucket.orch.arn}/locks/*",
      "${aws_s3_bucket.orch.arn}/runs/*",
    ]
  }
}
