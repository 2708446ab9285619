# terraform test: plans with a provider that asks no cloud. No credentials are needed.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
}

variables {
  project         = "my-project"
  billing_account = "012345-6789AB-CDEF01"
  budget          = 100
  ssh_cidrs       = ["203.0.113.7/32"]
}

run "as_it_comes" {
  command = plan

  assert {
    condition     = output.orch.environment == { GOOGLE_CLOUD_PROJECT = "my-project", ORCH_GCP_SUBNETWORK = "orch" }
    error_message = "The outputs do not say how orch finds its network."
  }

  assert {
    condition     = google_compute_firewall.ssh.source_ranges == var.ssh_cidrs
    error_message = "ssh is let in from other ranges than those that were given."
  }

  assert {
    condition     = length(google_project_iam_member.orch) == length(google_project_iam_custom_role.orch)
    error_message = "The service account has not each role once."
  }

  assert {
    condition     = length(google_project_iam_member.orch["instances serviceAccount:orch-user@my-project.iam.gserviceaccount.com"].condition) == 1
    error_message = "Machines of others could be ended."
  }

  assert {
    condition     = google_billing_budget.orch.budget_filter[0].projects == toset(["projects/123456789012"])
    error_message = "The budget counts other projects."
  }

  assert {
    condition     = length(google_cloud_run_v2_job.reaper) + length(google_cloud_scheduler_job.reaper) + length(google_org_policy_policy.tls) == 0
    error_message = "The reaper or the policy is there without being asked for."
  }
}

run "with_everything" {
  command = plan

  variables {
    members       = ["user:ann@example.com", "group:team@example.com"]
    budget_emails = ["ann@example.com"]
    regions       = ["us-central1", "europe-west4"]
    enforce_tls   = true
    reaper_wheel  = "outputs.tf"
  }

  assert {
    condition     = { for region, subnet in google_compute_subnetwork.orch : region => subnet.ip_cidr_range } == { us-central1 = "10.64.0.0/20", europe-west4 = "10.64.16.0/20" }
    error_message = "Not each region has its subnetwork."
  }

  assert {
    condition     = length(google_project_iam_member.orch) == 15 && length(google_storage_bucket_iam_member.use) == 3
    error_message = "Not everybody may use orch who was named."
  }

  assert {
    condition     = google_storage_bucket_object.wheel[0].name == "reaper/outputs.tf" && length(google_project_iam_member.reaper) == 3
    error_message = "The reaper is not there."
  }
}

run "by_tunnel" {
  command = plan

  variables {
    tunnel = true
  }

  assert {
    condition     = output.orch.environment.ORCH_GCP_INTERNAL == "iap" && length(google_compute_firewall.tunnel) == 1
    error_message = "There is no tunnel, or the outputs do not say so."
  }

  assert {
    condition     = google_project_iam_custom_role.orch["tunnel"].permissions == toset(["iap.tunnelInstances.accessViaIAP"])
    error_message = "Nobody may use the tunnel."
  }
}

run "the_world_is_refused" {
  command = plan

  variables {
    ssh_cidrs = ["0.0.0.0/0"]
  }

  expect_failures = [var.ssh_cidrs]
}

run "everybody_is_refused" {
  command = plan

  variables {
    members = ["allUsers", "domain:example.com"]
  }

  expect_failures = [var.members]
}
