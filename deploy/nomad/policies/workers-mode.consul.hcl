# What the Nomad backend needs of Consul in the mode workers with the provider consul: it reads the instances of the workers' service,
# which are on any node. A worker itself needs no token: Nomad registers its service.
#
#   consul acl policy create -name python-executor-workers -rules @workers-mode.consul.hcl
#   consul acl token create -policy-name python-executor-workers
service "python-executor-worker" {
  policy = "read"
}

node_prefix "" {
  policy = "read"
}
