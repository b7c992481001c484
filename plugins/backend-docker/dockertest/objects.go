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
)

// asking bounds a question. It does not end with the test: one asks when a test is over, too.
func asking() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the daemon does not answer"))
}

// Objects lists the containers, volumes and networks of the daemon that have a label: "key" or "key=value". One line each,
// for people; a test that has ended has none.
func Objects(t testing.TB, label string) []string {
	t.Helper()
	cli, done, err := dial(Host(t))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := asking()
	defer cancel()
	ours := filters.NewArgs(filters.Arg("label", label))
	containers, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, c := range containers {
		list = append(list, fmt.Sprintf("container %.12s %s %v", c.ID, c.Status, c.Labels))
	}
	volumes, err := cli.VolumeList(ctx, volume.ListOptions{Filters: ours})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes.Volumes {
		list = append(list, "volume "+v.Name)
	}
	networks, err := cli.NetworkList(ctx, network.ListOptions{Filters: ours})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range networks {
		list = append(list, "network "+n.Name)
	}
	return list
}

// Containers are the ids of the containers that have all these labels, running or not.
func Containers(t testing.TB, labels ...string) []string {
	t.Helper()
	cli, done, err := dial(Host(t))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := asking()
	defer cancel()
	all := filters.NewArgs()
	for _, l := range labels {
		all.Add("label", l)
	}
	containers, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: all})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, 0, len(containers))
	for _, c := range containers {
		ids = append(ids, c.ID)
	}
	return ids
}

// Kill kills a container as its daemon does when told to.
func Kill(t testing.TB, id string) {
	t.Helper()
	cli, done, err := dial(Host(t))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := asking()
	defer cancel()
	if err := cli.ContainerKill(ctx, id, "KILL"); err != nil {
		t.Log(err) // it may have ended
	}
}
