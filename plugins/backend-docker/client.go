package dockerbackend

import (
	_ "github.com/docker/cli/cli/config"
	_ "github.com/docker/docker/client"
	_ "github.com/docker/docker/pkg/stdcopy"
	_ "github.com/docker/docker/api/types/container"
	_ "github.com/docker/docker/api/types/image"
	_ "github.com/docker/docker/api/types/network"
	_ "github.com/docker/docker/api/types/volume"
	_ "github.com/docker/docker/api/types/registry"
	_ "github.com/docker/docker/api/types/events"
	_ "github.com/python-executor/python-executor/core/executor/plugin"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
)
