# For a team's ledger, data and runs: versioned, private, encrypted (Google does it always), and never destroyed
# by accident.

resource "google_storage_bucket" "orch" {
  name                        = coalesce(var.bucket, "orch-${var.project}")
  location                    = var.bucket_location
  force_destroy               = false
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  depends_on                  = [google_project_service.api]

  versioning {
    enabled = true
  }

  lifecycle_rule {
    condition {
      days_since_noncurrent_time = var.keep_old_days
      with_state                 = "ARCHIVED"
    }

    action {
      type = "Delete"
    }
  }

  lifecycle_rule {
    condition {
      age = 7
    }

    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  lifecycle {
    prevent_destroy = true
  }
}

locals {
  # Not of the folder from which the reaper takes its program.
  bucket_folders = join(" || ", [
    for folder in ["blobs", "ledgers", "locks", "runs"] :
    "resource.name.startsWith('projects/_/buckets/${google_storage_bucket.orch.name}/objects/${folder}/')"
  ])
}

resource "google_storage_bucket_iam_member" "use" {
  for_each = setunion(var.members, [local.service])

  bucket = google_storage_bucket.orch.name
  role   = "roles/storage.objectUser"
  member = each.key

  condition {
    title      = "orch_folders"
    expression = "resource.type != 'storage.googleapis.com/Object' || ${local.bucket_folders}"
  }

  depends_on = [google_service_account.orch]
}

resource "google_org_policy_policy" "tls" {
  count = var.enforce_tls ? 1 : 0

  name   = "projects/${var.project}/policies/storage.secureHttpTransport"
  parent = "projects/${var.project}"

  spec {
    rules {
      enforce = "TRUE"
    }
  }

  depends_on = [google_project_service.api]
}
