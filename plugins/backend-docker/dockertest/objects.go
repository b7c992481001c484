package dockertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// ask makes requests to the daemon. They do not end with the test, because they also check what is left after it.
func ask(t testing.TB, requests func(context.Context, *client.Client) error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), awaittest.Bound, errors.New("the daemon does not answer"))
	defer cancel()
	cli, done, err := dial(Host(t))
	if err == nil {
		defer done()
		err = requests(ctx, cli)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Objects lists the containers, volumes and networks of the daemon that have a label, "key" or "key=value". It returns one line
// for each, for messages. A test that has cleaned up leaves none.
func Objects(t testing.TB, label string) []string {
	t.Helper()
	labelled := filters.NewArgs(filters.Arg("label", label))
	var list []string
	ask(t, func(ctx context.Context, cli *client.Client) error {
		containers, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: labelled})
		for _, c := range containers {
			list = append(list, fmt.Sprintf("container %.12s %s %v", c.ID, c.Status, c.Labels))
		}
		if err != nil {
			return err
		}
		volumes, err := cli.VolumeList(ctx, volume.ListOptions{Filters: labelled})
		for _, v := range volumes.Volumes {
			list = append(list, "volume "+v.Name)
		}
		if err != nil {
			return err
		}
		networks, err := cli.NetworkList(ctx, network.ListOptions{Filters: labelled})
		for _, n := range networks {
			list = append(list, "network "+n.Name)
		}
		return err
	})
	return list
}

// Containers returns the ids of the containers that have all these labels, running or not.
func Containers(t testing.TB, labels ...string) []string {
	t.Helper()
	all := filters.NewArgs()
	for _, l := range labels {
		all.Add("label", l)
	}
	ids := []string{}
	ask(t, func(ctx context.Context, cli *client.Client) error {
		containers, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: all})
		for _, c := range containers {
			ids = append(ids, c.ID)
		}
		return err
	})
	return ids
}

// Kill asks the daemon to kill a container. It logs an error, because the container may have ended.
func Kill(t testing.TB, id string) {
	t.Helper()
	ask(t, func(ctx context.Context, cli *client.Client) error {
		if err := cli.ContainerKill(ctx, id, "KILL"); err != nil {
			t.Log(err)
		}
		return nil
	})
}

// Touch makes an empty file in a running container, for a program that waits for it. The image has a touch.
func Touch(t testing.TB, id, path string) {
	t.Helper()
	ask(t, func(ctx context.Context, cli *client.Client) error {
		made, err := cli.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: []string{"touch", path}})
		if err != nil {
			return err
		}
		if err := cli.ContainerExecStart(ctx, made.ID, container.ExecStartOptions{}); err != nil {
			return err
		}
		awaittest.UntilNil(t, "the end of touch in a container", func() error {
			now, err := cli.ContainerExecInspect(ctx, made.ID)
			if err == nil && now.Running {
				err = errors.New("it runs")
			}
			if err == nil && now.ExitCode != 0 {
				t.Fatalf("touch %s: exit code %d", path, now.ExitCode)
			}
			return err
		})
		return nil
	})
}

// RemoveContainers removes the containers of host's daemon that have a label, "key=value", running or not.
func RemoveContainers(host, label string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the daemon does not answer"))
	defer cancel()
	cli, done, err := dial(host)
	if err != nil {
		return err
	}
	defer done()
	list, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	for _, c := range list {
		err = errors.Join(err, cli.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}
	return err
}
