// Package backend has the parts that every Backend needs and that know no sandbox technology: reading a configuration,
// refusing a Spec, sharing one preparation between jobs, and the registries of running jobs and open Sessions. It imports
// the contract only, starts nothing by itself and holds no state of its own.
//
// One flow, as both bundled backends have it:
//
//   - At the start, Problems.Read fills the Config from its section and Problems.Err names every bad key.
//   - Run first has CheckSpec name the fields of the Spec that the backend cannot serve.
//   - Jobs.Enter registers the job, so that Remove and Close can end it.
//   - Prepare follows the preparation of a job. In it Group.Do makes an environment or an image; jobs that need the same share
//     the work.
//   - Sessions keeps each open Session until it is closed or lost; Calls serves what a Session's runner answers directly.
//   - Doctor returns Findings.
package backend
