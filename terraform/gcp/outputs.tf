output "orch" {
  description = "What a profile needs: orch init --terraform terraform/gcp reads it."
  value = {
    version = 1
    cloud   = "gcp"
    regions = var.regions
    environment = merge(
      {
        GOOGLE_CLOUD_PROJECT = var.project
        ORCH_GCP_SUBNETWORK  = google_compute_subnetwork.orch[var.regions[0]].name
      },
      var.tunnel ? { ORCH_GCP_INTERNAL = "iap" } : {},
    )
  }
}

output "bucket" {
  description = "For a team's ledger, data and runs."
  value       = google_storage_bucket.orch.name
}

output "service_account" {
  description = "Who uses orch in scheduled jobs."
  value       = google_service_account.orch.email
}

output "roles" {
  description = "What orch's calls take, to be granted to identities that are kept elsewhere, each under its condition."
  value = {
    for name, role in google_project_iam_custom_role.orch : role.id => local.roles[name].condition
  }
}
