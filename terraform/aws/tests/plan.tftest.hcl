# terraform test: plans with a provider that asks no cloud. No credentials are needed.

mock_provider "aws" {
  mock_data "aws_availability_zones" {
    defaults = { names = ["us-east-1a", "us-east-1c"] }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
}

variables {
  ssh_cidrs     = ["203.0.113.7/32", "198.51.100.0/24"]
  budget_usd    = 100
  budget_emails = ["someone@example.com"]
}

run "as_it_comes" {
  command = plan

  assert {
    condition     = output.orch.cloud == "aws" && output.orch.environment.ORCH_AWS_REGIONS == "us-east-1"
    error_message = "The outputs do not say where machines may be."
  }

  assert {
    condition     = toset([for rule in aws_vpc_security_group_ingress_rule.ssh : rule.cidr_ipv4]) == var.ssh_cidrs
    error_message = "ssh is let in from other ranges than those that were given."
  }

  assert {
    condition     = { for zone, subnet in aws_subnet.orch : zone => subnet.cidr_block } == { us-east-1a = "10.73.0.0/20", us-east-1c = "10.73.32.0/20" }
    error_message = "A zone's addresses do not go by its letter."
  }

  assert {
    condition     = aws_s3_bucket.orch.bucket == "orch-123456789012-us-east-1"
    error_message = "The bucket has another name."
  }

  assert {
    condition     = length(aws_budgets_budget.orch.notification) == 4
    error_message = "There are not four alarms."
  }

  assert {
    condition     = length(aws_lambda_function.reaper) + length(aws_iam_role.orch) + length(aws_scheduler_schedule.reaper) + length(aws_vpc_endpoint.tunnel) == 0
    error_message = "The reaper, the tunnel or the role is there without being asked for."
  }
}

run "with_everything" {
  command = plan

  variables {
    users        = ["ann", "bob"]
    trusted_arns = ["arn:aws:iam::123456789012:role/ci"]
    bucket       = "ours"
    reaper_wheel = "outputs.tf"
  }

  assert {
    condition     = length(aws_lambda_function.reaper) == 1 && length(aws_cloudwatch_metric_alarm.reaper_fails) == 1
    error_message = "The reaper is not there."
  }

  assert {
    condition     = length(aws_iam_role.orch) == 1 && length(aws_iam_user_group_membership.orch) == 2
    error_message = "Not everybody may use orch who was named."
  }
}

run "by_tunnel" {
  command = plan

  variables {
    tunnel       = true
    trusted_arns = ["arn:aws:iam::123456789012:role/ci"]
  }

  assert {
    condition     = output.orch.environment == { ORCH_AWS_REGIONS = "us-east-1", ORCH_AWS_ADDRESS = "ssm", ORCH_AWS_INSTANCE_PROFILE = "orch-machine" }
    error_message = "The outputs do not say that there is a tunnel."
  }

  assert {
    condition     = length(aws_vpc_endpoint.tunnel) == 2 && length(aws_iam_role_policy_attachment.tunnel) == 1
    error_message = "The tunnel is not whole."
  }
}

run "two_regions" {
  command = plan

  variables {
    regions = ["eu-west-1", "us-east-1"]
  }

  override_data {
    target = data.aws_availability_zones.here["eu-west-1"]
    values = { names = ["eu-west-1b"] }
  }

  assert {
    condition     = length(aws_subnet.orch) == 3 && length(aws_vpc_security_group_ingress_rule.ssh) == 4
    error_message = "Not each region has its network."
  }
}

run "the_world_is_refused" {
  command = plan

  variables {
    ssh_cidrs = ["0.0.0.0/0"]
  }

  expect_failures = [var.ssh_cidrs]
}

run "half_the_world_is_refused" {
  command = plan

  variables {
    ssh_cidrs = ["203.0.113.7/32", "128.0.0.0/1"]
  }

  expect_failures = [var.ssh_cidrs]
}

run "nobody_is_refused" {
  command = plan

  variables {
    ssh_cidrs = []
  }

  expect_failures = [var.ssh_cidrs]
}

run "every_account_is_refused" {
  command = plan

  variables {
    trusted_arns = ["*", "arn:aws:iam::123456789012:root"]
  }

  expect_failures = [var.trusted_arns]
}
