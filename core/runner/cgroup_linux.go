package runner

// Cgroups are control group folders by controller: "memory", "pids", "cpu", "cpuacct" (v1) and "unified" (v2, with
// whichever controllers it has; without any it still kills reliably). It is what Config.Cgroups holds.
type Cgroups map[string]string

// FindCgroups returns the folders in which this process may make groups; empty if there are none. An error says why a
// controller that the kernel has is not ours to use; what was found beside it is returned too.
func FindCgroups() (Cgroups, error) { return nil, nil }

// Enforces reports whether a limit of controller ("memory", "pids", "cpu") holds in children of c.
func (c Cgroups) Enforces(controller string) bool { return false }

// Make makes the group name below each folder of c and returns those. It is no error if one exists.
func (c Cgroups) Make(name string) (Cgroups, error) { return nil, nil }

// Children returns the names of the groups below c, sorted, each once.
func (c Cgroups) Children() []string { return nil }

// Child returns the group name below c without making it.
func (c Cgroups) Child(name string) Cgroups { return nil }

// Kill kills every process in c and below, this process and its threads excepted, and returns when none is left that
// is not a zombie, or after a bounded number of attempts with an error.
func (c Cgroups) Kill() error { return nil }

// Remove kills what is in c and removes c and all groups below it. Idempotent.
func (c Cgroups) Remove() error { return nil }
