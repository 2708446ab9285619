terraform {
  required_version = ">= 1.6"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.50"
    }
  }
}

# The budget's API counts calls of people against a project: this one.
provider "google" {
  project               = var.project
  region                = var.regions[0]
  user_project_override = true
  billing_project       = var.project

  default_labels = { orch = "terraform" }
}
