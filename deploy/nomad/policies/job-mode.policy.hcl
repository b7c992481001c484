# What the Nomad backend needs in the mode job. It registers, watches and removes its own batch jobs, and reads the files of their
# allocations. It needs no right on nodes, agents or other namespaces.
#
#   nomad acl policy apply -description "python-executor, mode job" python-executor-job job-mode.policy.hcl
#   nomad acl token create -name python-executor -policy python-executor-job
namespace "python-executor" {
  # submit-job: register and deregister. list-jobs: find the jobs of this installation again. read-job: their evaluations and
  # allocations. read-fs: output, result and artifacts, which are files of the allocation.
  capabilities = ["submit-job", "list-jobs", "read-job", "read-fs"]
}
