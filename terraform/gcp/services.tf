# The services that orch's calls go to, and those that this configuration itself uses.

locals {
  apis = toset(concat(
    jsondecode(file("${path.module}/apis.json")),
    ["billingbudgets.googleapis.com", "iam.googleapis.com", "storage.googleapis.com"],
    length(var.budget_emails) > 0 ? ["monitoring.googleapis.com"] : [],
    var.enforce_tls ? ["orgpolicy.googleapis.com"] : [],
    var.reaper_wheel == null ? [] : ["cloudscheduler.googleapis.com", "run.googleapis.com"],
  ))
}

resource "google_project_service" "api" {
  for_each = local.apis

  service            = each.key
  disable_on_destroy = false
}
