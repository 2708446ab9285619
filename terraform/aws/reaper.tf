# The second line of defence: `orch gc` on a schedule ends machines that outlived their deadline, in every region
# of the account. A Lambda function runs it from orch's wheel as it is: a wheel is a zip with the package at its top,
# and Lambda's Python has boto3. Mail is sent where a run fails, and where none was begun for a day.

locals {
  reapers = var.reaper_wheel == null ? 0 : 1
}

resource "aws_lambda_function" "reaper" {
  count = local.reapers

  function_name    = "orch-reaper"
  description      = "orch gc: ends machines of orch that outlived their deadline."
  role             = aws_iam_role.reaper[0].arn
  filename         = var.reaper_wheel
  source_code_hash = filebase64sha256(var.reaper_wheel)
  runtime          = "python3.12"
  handler          = "orchestrator.leases.reaper.handler"
  timeout          = 900
  memory_size      = 512

  environment {
    variables = {
      ORCH_REAPER_CLOUD = "aws"
      ORCH_AWS_REGIONS  = "all"
      ORCH_STATE_HOME   = "/tmp/orch"
    }
  }

  logging_config {
    log_format = "Text"
    log_group  = aws_cloudwatch_log_group.reaper[0].name
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
    arn      = aws_lambda_function.reaper[0].arn
    role_arn = aws_iam_role.clock[0].arn
  }
}

# ---------------------------------------------------------------- where it fails

resource "aws_sns_topic" "reaper" {
  count = local.reapers

  name = "orch-reaper"
}

resource "aws_sns_topic_subscription" "reaper" {
  for_each = local.reapers == 0 ? toset([]) : toset(var.budget_emails)

  topic_arn = aws_sns_topic.reaper[0].arn
  protocol  = "email"
  endpoint  = each.key
}

resource "aws_cloudwatch_metric_alarm" "reaper_fails" {
  count = local.reapers

  alarm_name          = "orch-reaper-fails"
  alarm_description   = "A machine of orch may have outlived its deadline. The log is in /orch/reaper."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.reaper[0].function_name }
  statistic           = "Sum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 1
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.reaper[0].arn]
}

resource "aws_cloudwatch_metric_alarm" "reaper_absent" {
  count = local.reapers

  alarm_name          = "orch-reaper-absent"
  alarm_description   = "Nobody has looked for a day whether machines of orch outlived their deadlines."
  namespace           = "AWS/Lambda"
  metric_name         = "Invocations"
  dimensions          = { FunctionName = aws_lambda_function.reaper[0].function_name }
  statistic           = "Sum"
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  period              = 86400
  evaluation_periods  = 1
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.reaper[0].arn]
}

# ---------------------------------------------------------------- as whom

data "aws_iam_policy_document" "trust_lambda" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "trust_scheduler" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["scheduler.amazonaws.com"]
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
  assume_role_policy = data.aws_iam_policy_document.trust_lambda.json
}

# What `orch gc` calls takes this much of policy.json; made by the same script.
resource "aws_iam_role_policy" "reaper" {
  count = local.reapers

  name   = "orch-gc"
  role   = aws_iam_role.reaper[0].id
  policy = file("${path.module}/reaper-policy.json")
}

data "aws_iam_policy_document" "reaper_log" {
  count = local.reapers

  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.reaper[0].arn}:*"]
  }
}

resource "aws_iam_role_policy" "reaper_log" {
  count = local.reapers

  name   = "log"
  role   = aws_iam_role.reaper[0].id
  policy = data.aws_iam_policy_document.reaper_log[0].json
}

resource "aws_iam_role" "clock" {
  count = local.reapers

  name               = "orch-reaper-clock"
  description        = "Starts the reaper."
  assume_role_policy = data.aws_iam_policy_document.trust_scheduler.json
}

data "aws_iam_policy_document" "clock" {
  count = local.reapers

  statement {
    actions   = ["lambda:InvokeFunction"]
    resources = [aws_lambda_function.reaper[0].arn]
  }
}

resource "aws_iam_role_policy" "clock" {
  count = local.reapers

  name   = "start"
  role   = aws_iam_role.clock[0].id
  policy = data.aws_iam_policy_document.clock[0].json
}
