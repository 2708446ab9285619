# One network with a subnetwork in each region. Nothing of it costs anything.

resource "google_compute_network" "orch" {
  name                    = "orch"
  auto_create_subnetworks = false
  depends_on              = [google_project_service.api]
}

# orch asks for a subnetwork by its name alone: ORCH_GCP_SUBNETWORK.
resource "google_compute_subnetwork" "orch" {
  for_each = { for index, region in var.regions : region => index }

  name                     = "orch"
  region                   = each.key
  network                  = google_compute_network.orch.id
  ip_cidr_range            = cidrsubnet(var.network, 8, each.value)
  private_ip_google_access = true
}

# orch gives every machine the tag orch. Nothing else is let in: a network of one's own has no other rule.
resource "google_compute_firewall" "ssh" {
  name          = "orch-ssh"
  description   = "ssh to machines of orch"
  network       = google_compute_network.orch.name
  direction     = "INGRESS"
  source_ranges = var.ssh_cidrs
  target_tags   = ["orch"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

# The Identity-Aware Proxy comes from these addresses, and asks Google's IAM whom it may let through.
resource "google_compute_firewall" "tunnel" {
  count = var.tunnel ? 1 : 0

  name          = "orch-tunnel"
  description   = "ssh to machines of orch through the Identity-Aware Proxy"
  network       = google_compute_network.orch.name
  direction     = "INGRESS"
  source_ranges = ["35.235.240.0/20"]
  target_tags   = ["orch"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}
