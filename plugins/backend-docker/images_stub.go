package dockerbackend

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
)

// imageInfo is an image that is there.
type imageInfo struct {
	ID, Digest string
	// Path is the image's own PATH; Volumes are the folders that it declares as volumes.
	Path    string
	Volumes []string
	// Requirements are the resolved ones of a prepared image.
	Requirements []string
}

type prepareSpec struct {
	PreCommands   []string
	Requirements  string
	PythonVersion string
}

type images struct{ daemon *daemon }

func (i *images) ensure(ctx context.Context, ref string, _ func(executor.Progress)) (imageInfo, error) {
	r, err := i.daemon.api.ImageInspect(ctx, ref)
	if err != nil {
		return imageInfo{}, executor.Errorf(executor.Invalid, "image %s: %w", ref, err)
	}
	return imageInfo{ID: r.ID, Digest: r.ID}, nil
}

func (i *images) volumes(string) []string { return nil }
func (i *images) forget(string)           {}

func (i *images) prepare(context.Context, imageInfo, prepareSpec, func(executor.Progress)) (imageInfo, *executor.Failure, error) {
	return imageInfo{}, nil, executor.Errorf(executor.Unimplemented, "prepare")
}
