# Only with `tunnel`: machines without a public address, reached through Session Manager. They have a role that
# lets their agent talk to it and nothing else, and reach it by endpoints inside the network.

locals {
  tunnel_regions = var.tunnel ? local.regions : toset([])

  endpoints = {
    for pair in setproduct(local.tunnel_regions, ["ssm", "ssmmessages"]) : "${pair[0]} ${pair[1]}" => {
      region  = pair[0]
      service = "com.amazonaws.${pair[0]}.${pair[1]}"
      subnet  = sort([for zone, place in local.zones : zone if place.region == pair[0]])[0]
    }
  }
}

data "aws_iam_policy_document" "trust_machine" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

# Of these none can be narrowed: the agent's calls name no resource.
data "aws_iam_policy_document" "machine" {
  statement {
    actions = [
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel",
      "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ]
    resources = ["*"]
  }
}

resource "aws_iam_role" "machine" {
  count = var.tunnel ? 1 : 0

  name               = "orch-machine"
  description        = "Machines of orch: their agent talks to Session Manager."
  assume_role_policy = data.aws_iam_policy_document.trust_machine.json
}

resource "aws_iam_role_policy" "machine" {
  count = var.tunnel ? 1 : 0

  name   = "agent"
  role   = aws_iam_role.machine[0].id
  policy = data.aws_iam_policy_document.machine.json
}

resource "aws_iam_instance_profile" "machine" {
  count = var.tunnel ? 1 : 0

  name = "orch-machine"
  role = aws_iam_role.machine[0].name
}

# Made by scripts/terraform_policies.py like policy.json; of the roles that may be passed on, this one alone.
resource "aws_iam_policy" "tunnel" {
  count = var.tunnel ? 1 : 0

  name        = "orch-tunnel"
  description = "What tunnels to machines of orch take, and no more."
  policy      = replace(file("${path.module}/tunnel-policy.json"), "arn:aws:iam::*:role/*", aws_iam_role.machine[0].arn)
}

resource "aws_iam_group_policy_attachment" "tunnel" {
  count = var.tunnel ? 1 : 0

  group      = aws_iam_group.orch.name
  policy_arn = aws_iam_policy.tunnel[0].arn
}

resource "aws_iam_role_policy_attachment" "tunnel" {
  count = var.tunnel && length(var.trusted_arns) > 0 ? 1 : 0

  role       = aws_iam_role.orch[0].name
  policy_arn = aws_iam_policy.tunnel[0].arn
}

resource "aws_security_group" "endpoints" {
  for_each = local.tunnel_regions

  region      = each.key
  name        = "orch-endpoints"
  description = "Session Manager, for machines of orch"
  vpc_id      = aws_vpc.orch[each.key].id
  tags        = { Name = "orch-endpoints" }
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  for_each = local.tunnel_regions

  region                       = each.key
  security_group_id            = aws_security_group.endpoints[each.key].id
  referenced_security_group_id = aws_security_group.ssh[each.key].id
  description                  = "machines of orch"
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

resource "aws_vpc_endpoint" "tunnel" {
  for_each = local.endpoints

  region              = each.value.region
  vpc_id              = aws_vpc.orch[each.value.region].id
  service_name        = each.value.service
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = [aws_subnet.orch[each.value.subnet].id]
  security_group_ids  = [aws_security_group.endpoints[each.value.region].id]
  tags                = { Name = "orch" }
}
