package sandbox

import (
	"errors"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Prepared is what the next Execution needs and what a runner can make while it is idle. It is made for the limits of the last
// Execution, because most Executions have the same. With other limits it is removed and made anew.
type Prepared struct {
	limits executor.Limits
	folder *Folder
	group  *Group // its spawner waits in it
	pipes  *Pipes // without standard input
}

// Keep returns what the next Execution can use of the group of one with these limits. It removes the group if that is nothing. held are the
// bytes of memory that are not freed although the processes of the Execution have ended.
func Keep(g *Group, limits executor.Limits) (kept *Prepared, held int64, err error) {
	if !g.Reset() {
		held = g.held()
		return nil, held, g.Remove()
	}
	return &Prepared{limits: limits, group: g}, 0, nil
}

// Prepare makes a Prepared. It uses or removes what was kept, which may be nil. It returns nil after an error: the next Execution meets
// the same error itself. s waits in the control groups; nil if no thread is to wait there.
func Prepare(cfg protocol.Config, d *Disk, name string, limits executor.Limits, s *Spawner, kept *Prepared) *Prepared {
	a := &Prepared{limits: limits, group: kept.TakeGroup(limits)}
	err := kept.Remove()
	if err == nil && !cfg.UseWorkRoot { // else the folder is the one that is there
		a.folder, err = MakeFolder(cfg, d, limits.DiskBytes)
	}
	if err == nil && a.group == nil {
		a.group, err = MakeGroup(cfg.Cgroups, name, GroupLimits(cfg, limits))
	}
	if err == nil {
		err = a.group.enterWaiting(s)
	}
	if err == nil {
		a.pipes, err = MakePipes(cfg, false)
	}
	if err != nil {
		_ = a.Remove() // what could not be made may not be removable either
		return nil
	}
	return a
}

// TakeFolder returns the folder, with room for limits, or nil.
func (a *Prepared) TakeFolder(limits executor.Limits) (*Folder, error) {
	if a == nil || a.folder == nil {
		return nil, nil
	}
	f := a.folder
	a.folder = nil
	if err := f.fit(limits.DiskBytes); err != nil {
		return nil, errors.Join(err, f.Remove())
	}
	return f, nil
}

// RemoveFolder removes the folder, because a process that is none of the next program's may have written to it.
func (a *Prepared) RemoveFolder() error {
	if a == nil || a.folder == nil {
		return nil
	}
	f := a.folder
	a.folder = nil
	return f.Remove()
}

// TakeGroup returns the control groups if they have these limits, or nil.
func (a *Prepared) TakeGroup(limits executor.Limits) (g *Group) {
	if a == nil || a.group == nil || a.limits.MemoryBytes != limits.MemoryBytes || a.limits.DiskBytes != limits.DiskBytes || a.limits.PIDs != limits.PIDs ||
		a.limits.CPUShares != limits.CPUShares {
		return nil
	}
	g, a.group = a.group, nil
	return g
}

// removeGroup removes the control groups if they were not taken.
func (a *Prepared) removeGroup() error {
	if a == nil || a.group == nil {
		return nil
	}
	g := a.group
	a.group = nil
	return g.Remove()
}

// TakePipes returns the pipes if they fit, or nil.
func (a *Prepared) TakePipes(stdin bool) (p *Pipes) {
	if a == nil || stdin {
		return nil
	}
	p, a.pipes = a.pipes, nil
	return p
}

// Remove removes what was not taken.
func (a *Prepared) Remove() error {
	if a == nil {
		return nil
	}
	var err error
	if a.folder != nil {
		err = a.folder.Remove()
		a.folder = nil
	}
	err = errors.Join(err, a.removeGroup())
	if a.pipes != nil {
		a.pipes.Close()
		a.pipes = nil
	}
	return err
}
