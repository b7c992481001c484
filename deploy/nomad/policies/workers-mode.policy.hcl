# What the Nomad backend needs in the mode workers. It reads the registrations of the workers' service, and nothing else. A worker
# itself needs no token: Nomad registers its service.
#
#   nomad acl policy apply -description "python-executor, mode workers" python-executor-workers workers-mode.policy.hcl
#   nomad acl token create -name python-executor -policy python-executor-workers
namespace "python-executor" {
  # The list of the instances of a service needs read-job. There is no smaller right.
  capabilities = ["read-job"]
}
