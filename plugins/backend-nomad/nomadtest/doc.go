// Package nomadtest provides a real Nomad for tests.
//
// The binary is the one that tools/nomad.sh has built and keeps in the cache folder. Start makes a cluster with a data folder and
// loopback addresses of its own: a server and clients, each a process that a test may kill and start again. Its tasks run in the Docker of
// package dockertest. Shared returns one cluster for all tests of a process, or of all processes below the command tests/cmd/daemons.
//
// TestMain calls Main. Without Linux, root, the binary or Docker a test is skipped, or fails if PYEXEC_TEST_REQUIRE contains
// "nomad". A cluster is removed with its containers, processes, mounts and folders when its test has ended. Those of a test process
// that was killed are removed by the next one.
package nomadtest
