# Of this project alone.

data "google_project" "here" {
  project_id = var.project
}

resource "google_monitoring_notification_channel" "mail" {
  for_each = var.budget_emails

  display_name = "orch budget: ${each.key}"
  type         = "email"
  labels       = { email_address = each.key }
  depends_on   = [google_project_service.api]
}

resource "google_billing_budget" "orch" {
  billing_account = var.billing_account
  display_name    = "orch"
  depends_on      = [google_project_service.api]

  budget_filter {
    projects = ["projects/${data.google_project.here.number}"]
  }

  amount {
    specified_amount {
      units = tostring(var.budget)
    }
  }

  threshold_rules {
    threshold_percent = 0.5
  }

  threshold_rules {
    threshold_percent = 0.8
  }

  threshold_rules {
    threshold_percent = 1
  }

  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }

  dynamic "all_updates_rule" {
    for_each = length(var.budget_emails) > 0 ? [1] : []

    content {
      monitoring_notification_channels = [for channel in google_monitoring_notification_channel.mail : channel.id]
    }
  }
}
