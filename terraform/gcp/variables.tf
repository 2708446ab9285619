variable "project" {
  description = "The project that holds and pays for machines."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "The project is named by its id, not by its number or title."
  }
}

variable "ssh_cidrs" {
  description = "IPv4 ranges from which ssh is let in, like 203.0.113.7/32: your own, never everybody's."
  type        = set(string)

  validation {
    condition     = length(var.ssh_cidrs) > 0
    error_message = "Name at least one range: without one nobody reaches a machine."
  }

  validation {
    condition     = alltrue([for range in var.ssh_cidrs : can(cidrnetmask(range))])
    error_message = "Each range is IPv4 in CIDR form, like 203.0.113.0/24."
  }

  validation {
    condition     = alltrue([for range in var.ssh_cidrs : try(tonumber(split("/", range)[1]) >= 8, false)])
    error_message = "A range of more than a /8 is refused; 0.0.0.0/0 would be the whole world."
  }
}

variable "billing_account" {
  description = "The account that is billed for the project, like 012345-6789AB-CDEF01: the budget belongs to it."
  type        = string

  validation {
    condition     = can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
    error_message = "A billing account looks like 012345-6789AB-CDEF01."
  }
}

variable "budget" {
  description = "How much a month, in whole units of the billing account's currency: mail is sent at half, at 80 %, when reached, and when it is forecast."
  type        = number

  validation {
    condition     = var.budget >= 1 && floor(var.budget) == var.budget
    error_message = "The budget is a whole number, at least 1."
  }
}

variable "budget_emails" {
  description = "Who is told, besides the administrators of the billing account. Five at most."
  type        = set(string)
  default     = []

  validation {
    condition     = length(var.budget_emails) <= 5 && alltrue([for mail in var.budget_emails : can(regex("^[^@]+@[^@]+$", mail))])
    error_message = "Name five addresses at most, each like someone@example.com."
  }
}

variable "regions" {
  description = "Regions in which orch may make machines. The first is the profile's, and holds the reaper."
  type        = list(string)
  default     = ["us-central1"]

  validation {
    condition     = length(var.regions) > 0 && length(distinct(var.regions)) == length(var.regions)
    error_message = "Name at least one region, each once."
  }
}

variable "network" {
  description = "Private addresses of the network, shared by the regions: a /12."
  type        = string
  default     = "10.64.0.0/12"

  validation {
    condition     = can(cidrnetmask(var.network)) && endswith(var.network, "/12")
    error_message = "The network is an IPv4 range that ends in /12."
  }
}

variable "members" {
  description = "Who may use orch, like user:someone@example.com or group:team@example.com."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.members : can(regex("^(user|group|serviceAccount|principal):", member))])
    error_message = "Each is one user, group, service account or principal: not a domain, and not everybody."
  }
}

variable "tunnel" {
  description = "Make ready for machines without a public address, reached through the Identity-Aware Proxy."
  type        = bool
  default     = false
}

variable "bucket" {
  description = "Name of the bucket for ledgers, data and runs. Default: orch-PROJECT."
  type        = string
  default     = null
}

variable "bucket_location" {
  description = "Where the bucket is: a region, or a multi-region like US."
  type        = string
  default     = "US"
}

variable "keep_old_days" {
  description = "Days for which replaced and deleted objects of the bucket can be had back."
  type        = number
  default     = 90
}

variable "enforce_tls" {
  description = "Forbid storage without TLS in the whole project, by a policy of its organization. orch itself never goes without."
  type        = bool
  default     = false
}

variable "reaper_wheel" {
  description = "Path of orch's wheel. With it, `orch gc` runs on a schedule; without it there is no reaper."
  type        = string
  default     = null
}

variable "reaper_schedule" {
  description = "How often, in the words of cron, in UTC."
  type        = string
  default     = "17 * * * *"
}

variable "reaper_image" {
  description = "An image with Python 3.11 or newer, in which the wheel is installed before each run."
  type        = string
  default     = "docker.io/library/python:3.12-slim"
}
