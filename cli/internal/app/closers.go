package app

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/cli/internal/stop"
)

// stopTime is how long each part may take to stop.
const stopTime = 15 * time.Second

var errStop = errors.New("the part did not stop in time")

// closers stop the started parts in reverse order, each once and with a time limit of its own. An error of one does not keep the
// others from stopping. The second request to stop ends the time of all.
type closers struct{ list []func(context.Context) error }

func (c *closers) add(f func(context.Context) error) { c.list = append(c.list, f) }

func (c *closers) close(ctx context.Context) error {
	var failed []error
	for len(c.list) > 0 {
		last := c.list[len(c.list)-1]
		c.list = c.list[:len(c.list)-1]
		failed = append(failed, bounded(ctx, last))
	}
	return errors.Join(failed...)
}

func bounded(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := stop.Within(ctx, stopTime, errStop)
	defer cancel()
	return end(ctx)
}
