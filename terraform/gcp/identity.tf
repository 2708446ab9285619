# Who may use orch, and with what: exactly the permissions that its calls take, on machines and disks of its
# own where a condition can say so. roles.json is made by scripts/terraform_policies.py from
# orchestrator/providers/permissions.

locals {
  roles = merge(
    jsondecode(file("${path.module}/roles.json")),
    { for name, role in jsondecode(file("${path.module}/tunnel-roles.json")) : name => role if var.tunnel },
  )

  service = "serviceAccount:orch-user@${var.project}.iam.gserviceaccount.com"

  granted = {
    for pair in setproduct(keys(local.roles), concat([local.service], tolist(var.members))) :
    "${pair[0]} ${pair[1]}" => { role = pair[0], member = pair[1] }
  }
}

# For scheduled jobs. It has no key: a job takes its place, or is attached to it.
resource "google_service_account" "orch" {
  account_id   = "orch-user"
  display_name = "Uses orch"
  depends_on   = [google_project_service.api]
}

resource "google_project_iam_custom_role" "orch" {
  for_each = local.roles

  role_id     = "orch_${each.key}"
  title       = "orch: ${each.key}"
  description = "What the calls of orch take, and no more."
  permissions = each.value.permissions
  depends_on  = [google_project_service.api]
}

resource "google_project_iam_member" "orch" {
  for_each = local.granted

  project = var.project
  role    = google_project_iam_custom_role.orch[each.value.role].id
  member  = each.value.member

  depends_on = [google_service_account.orch]

  dynamic "condition" {
    for_each = local.roles[each.value.role].condition == "" ? [] : [local.roles[each.value.role].condition]

    content {
      title      = "orch_${each.value.role}"
      expression = condition.value
    }
  }
}
