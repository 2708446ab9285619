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

variable "budget_usd" {
  description = "US dollars a month at which mail is sent: at half, at 80 %, when reached, and when it is forecast."
  type        = number

  validation {
    condition     = var.budget_usd > 0
    error_message = "The budget is more than 0."
  }
}

variable "budget_emails" {
  description = "Who is told."
  type        = list(string)

  validation {
    condition     = length(var.budget_emails) > 0 && alltrue([for mail in var.budget_emails : can(regex("^[^@]+@[^@]+$", mail))])
    error_message = "Name at least one address, each like someone@example.com."
  }
}

variable "regions" {
  description = "Regions in which orch may make machines. The first holds the bucket and the reaper, which looks in every region."
  type        = list(string)
  default     = ["us-east-1"]

  validation {
    condition     = length(var.regions) > 0 && length(distinct(var.regions)) == length(var.regions)
    error_message = "Name at least one region, each once."
  }
}

variable "network" {
  description = "Private addresses of the network, the same in every region: a /16."
  type        = string
  default     = "10.73.0.0/16"

  validation {
    condition     = can(cidrnetmask(var.network)) && endswith(var.network, "/16")
    error_message = "The network is an IPv4 range that ends in /16."
  }
}

variable "users" {
  description = "Existing IAM users who may use orch."
  type        = set(string)
  default     = []
}

variable "trusted_arns" {
  description = "ARNs of users and roles that may take the role orch, for scheduled jobs and single sign-on. Empty: there is no such role."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.trusted_arns : can(regex("^arn:aws:(iam|sts)::[0-9]{12}:(user|role|assumed-role)/", arn))])
    error_message = "Each is the ARN of one user or role: not an account, and not everybody."
  }
}

variable "tunnel" {
  description = "Make ready for machines without a public address, reached through Session Manager. Its endpoints cost by the hour."
  type        = bool
  default     = false
}

variable "bucket" {
  description = "Name of the bucket for ledgers, data and runs. Default: orch-ACCOUNT-REGION."
  type        = string
  default     = null
}

variable "keep_old_days" {
  description = "Days for which replaced and deleted objects of the bucket can be had back."
  type        = number
  default     = 90
}

variable "reaper_wheel" {
  description = "Path of orch's wheel. With it, `orch gc` runs on a schedule; without it there is no reaper."
  type        = string
  default     = null
}

variable "reaper_schedule" {
  description = "How often, in the words of EventBridge Scheduler."
  type        = string
  default     = "rate(1 hour)"
}
