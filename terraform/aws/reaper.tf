# The second line of defence: `orch gc` on a schedule ends machines that outlived their deadline. A build of
# CodeBuild runs it, from the wheel that is put into the bucket; its log and its failures are the build's.

locals {
  reapers = var.reaper_wheel == null ? 0 : 1
}

resource "aws_s3_object" "wheel" {
  count = local.reapers

  bucket      = aws_s3_bucket.orch.id
  key         = "reaper/${basename(var.reaper_wheel)}"
  source      = var.reaper_wheel
  source_hash = filemd5(var.reaper_wheel)
}

resource "aws_codebuild_project" "reaper" {
  count = local.reapers

  name          = "orch-reaper"
  description   = "orch gc: ends machines of orch that outlived their deadline."
  service_role  = aws_iam_role.reaper[0].arn
  build_timeout = 15

  artifacts {
    type = "NO_ARTIFACTS"
  }

  environment {
    type         = "LINUX_CONTAINER"
    compute_type = "BUILD_GENERAL1_SMALL"
    image        = "aws/codebuild/amazonlinux-x86_64-standard:5.0"

    environment_variable {
      name  = "ORCH_AWS_REGIONS"
      value = join(",", var.regions)
    }

    environment_variable {
      name  = "WHEEL"
      value = "s3://${aws_s3_bucket.orch.id}/${aws_s3_object.wheel[0].key}"
    }
  }

  logs_config {
    cloudwatch_logs {
      group_name = aws_cloudwatch_log_group.reaper[0].name
    }
  }

  source {
    type = "NO_SOURCE"
    buildspec = yamlencode({
      version = "0.2"
      phases = {
        install = {
          "runtime-versions" = { python = "3.12" }
          commands = [
            "aws s3 cp \"$WHEEL\" /tmp/",
            "pip install \"/tmp/$(basename \"$WHEEL\")[aws]\"",
          ]
        }
        build = { commands = ["orch gc --cloud aws --others"] }
      }
    })
  }
}

resource "aws_cloudwatch_log_group" "reaper" {
  count = local.reapers

  name              = "/orch/reaper"
  retention_in_days = 30
}

resource "aws_scheduler_schedule" "reaper" {
  count = local.reapers

  name                = "orch-reaper"
  schedule_expression = var.reaper_schedule

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = "arn:aws:scheduler:::aws-sdk:codebuild:startBuild"
    role_arn = aws_iam_role.clock[0].arn
    input    = jsonencode({ ProjectName = aws_codebuild_project.reaper[0].name })
  }
}

# ---------------------------------------------------------------- as whom

data "aws_iam_policy_document" "trust_service" {
  for_each = toset(["codebuild.amazonaws.com", "scheduler.amazonaws.com"])

  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = [each.key]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.here.account_id]
    }
  }
}

resource "aws_iam_role" "reaper" {
  count = local.reapers

  name               = "orch-reaper"
  description        = "Lists machines of orch and ends them."
  assume_role_policy = data.aws_iam_policy_document.trust_service["codebuild.amazonaws.com"].json
}

# What `orch gc` calls takes this much of policy.json; made by the same script.
resource "aws_iam_role_policy" "reaper" {
  count = local.reapers

  name   = "orch-gc"
  role   = aws_iam_role.reaper[0].id
  policy = file("${path.module}/reaper-policy.json")
}

data "aws_iam_policy_document" "reaper_build" {
  count = local.reapers

  statement {
    actions   = ["s3:GetObject"]
    resources = ["${aws_s3_bucket.orch.arn}/${aws_s3_object.wheel[0].key}"]
  }

  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.reaper[0].arn}:*"]
  }
}

resource "aws_iam_role_policy" "reaper_build" {
  count = local.reapers

  name   = "build"
  role   = aws_iam_role.reaper[0].id
  policy = data.aws_iam_policy_document.reaper_build[0].json
}

resource "aws_iam_role" "clock" {
  count = local.reapers

  name               = "orch-reaper-clock"
  description        = "Starts the reaper."
  assume_role_policy = data.aws_iam_policy_document.trust_service["scheduler.amazonaws.com"].json
}

data "aws_iam_policy_document" "clock" {
  count = local.reapers

  statement {
    actions   = ["codebuild:StartBuild"]
    resources = [aws_codebuild_project.reaper[0].arn]
  }
}

resource "aws_iam_role_policy" "clock" {
  count = local.reapers

  name   = "start"
  role   = aws_iam_role.clock[0].id
  policy = data.aws_iam_policy_document.clock[0].json
}
