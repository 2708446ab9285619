# One network for each region, with a public subnet in each of its zones. Nothing of it costs anything.

locals {
  regions = toset(var.regions)

  # By the letter that ends its name, so that a zone keeps its addresses when others come.
  zones = merge([
    for region, found in data.aws_availability_zones.here : {
      for zone in found.names : zone => {
        region = region
        index  = index(split("", "abcdefghijklmnop"), substr(zone, -1, 1))
      }
    }
  ]...)

  ssh = {
    for pair in setproduct(var.regions, var.ssh_cidrs) : "${pair[0]} ${pair[1]}" => {
      region = pair[0]
      range  = pair[1]
    }
  }
}

data "aws_availability_zones" "here" {
  for_each = local.regions

  region = each.key
  state  = "available"

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

resource "aws_vpc" "orch" {
  for_each = local.regions

  region               = each.key
  cidr_block           = var.network
  enable_dns_hostnames = true
  tags                 = { Name = "orch" }
}

resource "aws_subnet" "orch" {
  for_each = local.zones

  region            = each.value.region
  vpc_id            = aws_vpc.orch[each.value.region].id
  availability_zone = each.key
  cidr_block        = cidrsubnet(var.network, 4, each.value.index)
  tags              = { Name = "orch-${each.key}" }
}

resource "aws_internet_gateway" "orch" {
  for_each = local.regions

  region = each.key
  vpc_id = aws_vpc.orch[each.key].id
  tags   = { Name = "orch" }
}

resource "aws_route_table" "orch" {
  for_each = local.regions

  region = each.key
  vpc_id = aws_vpc.orch[each.key].id
  tags   = { Name = "orch" }
}

resource "aws_route" "out" {
  for_each = local.regions

  region                 = each.key
  route_table_id         = aws_route_table.orch[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.orch[each.key].id
}

resource "aws_route_table_association" "orch" {
  for_each = local.zones

  region         = each.value.region
  subnet_id      = aws_subnet.orch[each.key].id
  route_table_id = aws_route_table.orch[each.value.region].id
}

# What comes with the network and lets its own in: emptied, so that nothing uses it by mistake.
resource "aws_default_security_group" "unused" {
  for_each = local.regions

  region = each.key
  vpc_id = aws_vpc.orch[each.key].id
}

# orch looks for a group of this name, and puts machines into its network.
resource "aws_security_group" "ssh" {
  for_each = local.regions

  region      = each.key
  name        = "orch-ssh"
  description = "ssh to machines of orch"
  vpc_id      = aws_vpc.orch[each.key].id
  tags        = { Name = "orch-ssh" }
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each = local.ssh

  region            = each.value.region
  security_group_id = aws_security_group.ssh[each.value.region].id
  description       = "ssh"
  cidr_ipv4         = each.value.range
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

# Machines fetch packages and data from wherever a project says.
resource "aws_vpc_security_group_egress_rule" "out" {
  for_each = local.regions

  region            = each.key
  security_group_id = aws_security_group.ssh[each.key].id
  description       = "out"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}
