package runner

import (
	"errors"

	"github.com/python-executor/python-executor/core/executor"
)

// ahead is what an Execution needs and what can be made before anybody asks for it: while a runner idles, not while
// somebody waits. It is made for the limits that were asked for last, because nearly everybody asks for the same; with
// other limits it is thrown away and made anew.
type ahead struct {
	limits executor.Limits
	folder *folder
	group  *group // its spawner waits in it
	pipes  *pipes // without standard input
}

// prepareAhead makes it. On an error there is none, and the next Execution meets the same error itself.
func prepareAhead(cfg Config, d *disk, name string, limits executor.Limits, s *spawner) *ahead {
	a := &ahead{limits: limits}
	var err error
	if !cfg.UseWorkRoot { // else the folder is the one that is there
		a.folder, err = makeFolder(cfg, d, limits.DiskBytes)
	}
	if err == nil {
		if a.group, err = makeGroup(cfg.Cgroups, name, limits); err == nil {
			err = a.group.enterAhead(s)
		}
	}
	if err == nil {
		a.pipes, err = makePipes(cfg, false)
	}
	if err != nil {
		_ = a.remove() // what could not be made may not be removable either
		return nil
	}
	return a
}

// takeFolder returns the folder, with room for limits; nil: there is none.
func (a *ahead) takeFolder(limits executor.Limits) (*folder, error) {
	if a == nil || a.folder == nil {
		return nil, nil
	}
	f := a.folder
	a.folder = nil
	if err := f.fit(limits.DiskBytes); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

// takeGroup returns the control groups if they fit.
func (a *ahead) takeGroup(limits executor.Limits) (g *group) {
	if a == nil || a.group == nil || a.limits.MemoryBytes != limits.MemoryBytes || a.limits.DiskBytes != limits.DiskBytes || a.limits.PIDs != limits.PIDs ||
		a.limits.CPUShares != limits.CPUShares {
		return nil
	}
	g, a.group = a.group, nil
	return g
}

// takePipes returns the pipes if they fit.
func (a *ahead) takePipes(stdin bool) (p *pipes) {
	if a == nil || stdin {
		return nil
	}
	p, a.pipes = a.pipes, nil
	return p
}

// remove gives back what was not taken.
func (a *ahead) remove() error {
	if a == nil {
		return nil
	}
	var err error
	if a.folder != nil {
		err = a.folder.remove()
		a.folder = nil
	}
	if a.group != nil {
		err = errors.Join(err, a.group.remove())
		a.group = nil
	}
	if a.pipes != nil {
		a.pipes.close()
		a.pipes = nil
	}
	return err
}
