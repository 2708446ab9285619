output "orch" {
  description = "What a profile needs: orch init --terraform terraform/aws reads it."
  value = {
    version = 1
    cloud   = "aws"
    regions = var.regions
    environment = merge(
      { ORCH_AWS_REGIONS = join(",", var.regions) },
      { for profile in aws_iam_instance_profile.machine : "ORCH_AWS_INSTANCE_PROFILE" => profile.name },
      var.tunnel ? { ORCH_AWS_ADDRESS = "ssm" } : {},
    )
  }
}

output "bucket" {
  description = "For a team's ledger, data and runs."
  value       = aws_s3_bucket.orch.id
}

output "group" {
  description = "The IAM group whose members may use orch."
  value       = aws_iam_group.orch.name
}

output "policy_arn" {
  description = "What orch's calls take, to be attached to identities that are kept elsewhere."
  value       = aws_iam_policy.orch.arn
}

output "role_arn" {
  description = "The role orch; null where nobody is trusted with it."
  value       = one(aws_iam_role.orch[*].arn)
}

output "security_groups" {
  description = "By region, the group that lets ssh in. orch finds it by its name."
  value       = { for region, group in aws_security_group.ssh : region => group.id }
}
