# Of the whole account: a budget by tag would count nothing before somebody activates the tag for billing.

locals {
  alarms = {
    half     = { type = "ACTUAL", percent = 50 }
    most     = { type = "ACTUAL", percent = 80 }
    reached  = { type = "ACTUAL", percent = 100 }
    forecast = { type = "FORECASTED", percent = 100 }
  }
}

resource "aws_budgets_budget" "orch" {
  name         = "orch"
  budget_type  = "COST"
  time_unit    = "MONTHLY"
  limit_amount = tostring(var.budget_usd)
  limit_unit   = "USD"

  dynamic "notification" {
    for_each = local.alarms

    content {
      comparison_operator        = "GREATER_THAN"
      threshold                  = notification.value.percent
      threshold_type             = "PERCENTAGE"
      notification_type          = notification.value.type
      subscriber_email_addresses = var.budget_emails
    }
  }
}
