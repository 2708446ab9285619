# Who may use orch, and with what: exactly the permissions that its calls take. policy.json is made by
# scripts/terraform_policies.py from orchestrator/providers/permissions.

data "aws_caller_identity" "here" {}

resource "aws_iam_policy" "orch" {
  name        = "orch"
  description = "What the calls of orch take, and no more."
  policy      = file("${path.module}/policy.json")
}

resource "aws_iam_policy" "bucket" {
  name        = "orch-bucket"
  description = "Ledgers, data and runs of orch: to read and to write, not to delete versions."
  policy      = data.aws_iam_policy_document.bucket_use.json
}

resource "aws_iam_group" "orch" {
  name = "orch"
}

resource "aws_iam_group_policy_attachment" "orch" {
  group      = aws_iam_group.orch.name
  policy_arn = aws_iam_policy.orch.arn
}

resource "aws_iam_group_policy_attachment" "bucket" {
  group      = aws_iam_group.orch.name
  policy_arn = aws_iam_policy.bucket.arn
}

# Adds to the groups of a user; those that it has elsewhere stay.
resource "aws_iam_user_group_membership" "orch" {
  for_each = var.users

  user   = each.key
  groups = [aws_iam_group.orch.name]
}

data "aws_iam_policy_document" "trust" {
  count = length(var.trusted_arns) > 0 ? 1 : 0

  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "AWS"
      identifiers = var.trusted_arns
    }
  }
}

resource "aws_iam_role" "orch" {
  count = length(var.trusted_arns) > 0 ? 1 : 0

  name                 = "orch"
  description          = "Uses orch."
  assume_role_policy   = data.aws_iam_policy_document.trust[0].json
  max_session_duration = 43200
}

resource "aws_iam_role_policy_attachment" "orch" {
  count = length(var.trusted_arns) > 0 ? 1 : 0

  role       = aws_iam_role.orch[0].name
  policy_arn = aws_iam_policy.orch.arn
}

resource "aws_iam_role_policy_attachment" "bucket" {
  count = length(var.trusted_arns) > 0 ? 1 : 0

  role       = aws_iam_role.orch[0].name
  policy_arn = aws_iam_policy.bucket.arn
}
