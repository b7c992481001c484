package executor

import "context"

// Frontend is a way in: it serves svc until ctx ends, then drains and returns nil.
type Frontend func(ctx context.Context, svc Service) error
