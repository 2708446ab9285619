# The second line of defence: `orch gc` on a schedule ends machines that outlived their deadline. A job of
# Cloud Run does it, from the wheel that is put into the bucket; its log and its failures are the job's.

locals {
  reapers      = var.reaper_wheel == null ? 0 : 1
  reaper_roles = var.reaper_wheel == null ? {} : jsondecode(file("${path.module}/reaper-roles.json"))
}

resource "google_storage_bucket_object" "wheel" {
  count = local.reapers

  bucket = google_storage_bucket.orch.name
  name   = "reaper/${basename(var.reaper_wheel)}"
  source = var.reaper_wheel
}

resource "google_cloud_run_v2_job" "reaper" {
  count = local.reapers

  name                = "orch-reaper"
  location            = var.regions[0]
  deletion_protection = false
  depends_on          = [google_project_service.api, google_storage_bucket_iam_member.reaper]

  template {
    template {
      service_account = google_service_account.reaper[0].email
      max_retries     = 1
      timeout         = "900s"

      containers {
        image   = var.reaper_image
        command = ["sh", "-ec", "pip install \"$WHEEL[gcp]\" && exec orch gc --cloud gcp --others"]

        env {
          name  = "GOOGLE_CLOUD_PROJECT"
          value = var.project
        }

        env {
          name  = "WHEEL"
          value = "/orch/${google_storage_bucket_object.wheel[0].name}"
        }

        resources {
          limits = { cpu = "1", memory = "1Gi" }
        }

        volume_mounts {
          name       = "orch"
          mount_path = "/orch"
        }
      }

      volumes {
        name = "orch"

        gcs {
          bucket    = google_storage_bucket.orch.name
          read_only = true
        }
      }
    }
  }
}

resource "google_cloud_scheduler_job" "reaper" {
  count = local.reapers

  name       = "orch-reaper"
  region     = var.regions[0]
  schedule   = var.reaper_schedule
  time_zone  = "Etc/UTC"
  depends_on = [google_project_service.api]

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/${google_cloud_run_v2_job.reaper[0].id}:run"

    oauth_token {
      service_account_email = google_service_account.clock[0].email
    }
  }
}

# ---------------------------------------------------------------- where it fails

resource "google_monitoring_alert_policy" "reaper" {
  count = local.reapers

  display_name          = "orch reaper fails"
  combiner              = "OR"
  notification_channels = [for channel in google_monitoring_notification_channel.mail : channel.id]
  depends_on            = [google_project_service.api]

  conditions {
    display_name = "A machine of orch may have outlived its deadline"

    condition_threshold {
      filter          = "resource.type = \"cloud_run_job\" AND resource.labels.job_name = \"${google_cloud_run_v2_job.reaper[0].name}\" AND metric.type = \"run.googleapis.com/job/completed_execution_count\" AND metric.labels.result = \"failed\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"

      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_DELTA"
      }
    }
  }
}

# ---------------------------------------------------------------- as whom

resource "google_service_account" "reaper" {
  count = local.reapers

  account_id   = "orch-reaper"
  display_name = "Lists machines of orch and ends them"
  depends_on   = [google_project_service.api]
}

resource "google_service_account" "clock" {
  count = local.reapers

  account_id   = "orch-reaper-clock"
  display_name = "Starts the reaper"
  depends_on   = [google_project_service.api]
}

# What `orch gc` calls takes this much of roles.json; made by the same script.
resource "google_project_iam_custom_role" "reaper" {
  for_each = local.reaper_roles

  role_id     = "orch_reaper_${each.key}"
  title       = "orch reaper: ${each.key}"
  description = "What the calls of orch gc take, and no more."
  permissions = each.value.permissions
  depends_on  = [google_project_service.api]
}

resource "google_project_iam_member" "reaper" {
  for_each = local.reaper_roles

  project = var.project
  role    = google_project_iam_custom_role.reaper[each.key].id
  member  = "serviceAccount:${google_service_account.reaper[0].email}"

  dynamic "condition" {
    for_each = each.value.condition == "" ? [] : [each.value.condition]

    content {
      title      = "orch_${each.key}"
      expression = condition.value
    }
  }
}

resource "google_storage_bucket_iam_member" "reaper" {
  count = local.reapers

  bucket = google_storage_bucket.orch.name
  role   = "roles/storage.objectViewer"
  member = "serviceAccount:${google_service_account.reaper[0].email}"

  condition {
    title      = "orch_reaper"
    expression = "resource.type != 'storage.googleapis.com/Object' || resource.name.startsWith('projects/_/buckets/${google_storage_bucket.orch.name}/objects/reaper/')"
  }
}

resource "google_cloud_run_v2_job_iam_member" "clock" {
  count = local.reapers

  name     = google_cloud_run_v2_job.reaper[0].name
  location = google_cloud_run_v2_job.reaper[0].location
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.clock[0].email}"
}
