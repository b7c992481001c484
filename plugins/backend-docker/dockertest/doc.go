// Package dockertest provides a Docker daemon and images for tests.
//
// It uses the daemon that DOCKER_HOST names, else the one at the default socket. If none answers, and the test runs as root
// with dockerd installed, it starts a private daemon with its own socket, data, exec root and bridge. Main stops and removes
// it. Several test processes may each have one at the same time. A later process removes the leftovers of a test process that
// was killed.
//
// A private daemon has gVisor as a runtime if that is installed (GVisor). It also listens on TCP with TLS (Remote).
//
// TestMain calls Main. A test calls Host for a daemon. Without one, the test is skipped, or fails if PYEXEC_TEST_REQUIRE
// contains "docker". Python and Bare return an image, which is imported from the files that tools/test-images.sh keeps in the
// cache folder.
package dockertest
