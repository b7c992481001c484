// Package dockertest gives tests a Docker and images to run in.
//
// It uses the Docker that it finds: the one that DOCKER_HOST names, else the default socket. Where none answers, and the
// test runs as root with dockerd installed, it starts a private one: own socket, data, exec root and bridge, stopped and
// removed by Main. Several test processes may do so at the same time. What a test process left that was killed is swept by
// the next one.
//
// A private one has gVisor as a runtime where that is installed (GVisor), and is reached by TCP and TLS, too (Remote).
//
// One flow: TestMain calls Main; a test asks Host for a daemon (and is skipped loudly if there can be none, or fails if
// PYEXEC_TEST_REQUIRE has "docker"), and Python or Bare for an image, which is imported from what tools/test-images.sh
// keeps in the cache folder.
package dockertest
