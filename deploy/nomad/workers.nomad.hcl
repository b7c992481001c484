# Resident workers for the mode workers of the Nomad backend (docs/nomad.md).
#
#   nomad job run -namespace python-executor -var count=2 workers.nomad.hcl
#   nomad job scale -namespace python-executor python-executor-workers worker 4
#
# The nodes need: the driver raw_exec, Docker, the certificates below, and max_kill_timeout of at least kill_timeout in the client stanza
# of the agent.

variable "count" {
  description = "How many workers run. Each has its own slots: the maximum number of running executions is count times slots."
  type        = number
  default     = 2
}

variable "slots" {
  description = "How many executions one worker runs at once."
  type        = number
  default     = 8
}

variable "provider" {
  description = "Where the workers are registered: nomad, or consul if the nodes have an agent of Consul (backends.nomad.workers.provider)."
  type        = string
  default     = "nomad"

  validation {
    condition     = var.provider == "nomad" || var.provider == "consul"
    error_message = "The provider must be nomad or consul."
  }
}

variable "binary" {
  description = "Where the nodes fetch the python-executor binary."
  type        = string
  default     = "https://downloads.example.org/python-executor"
}

variable "checksum" {
  description = "The checksum of the binary: sha256:HEX."
  type        = string
  default     = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
}

variable "certificates" {
  description = "The folder of each node with ca.pem, worker.pem and worker-key.pem. The certificate has the DNS name worker.python-executor."
  type        = string
  default     = "/etc/python-executor/tls"
}

variable "image" {
  description = "The image of requests that name none."
  type        = string
  default     = "python:3.12-slim"
}

variable "docker" {
  description = "The DOCKER_HOST of the nodes. Empty: the default socket."
  type        = string
  default     = ""
}

variable "one_per_node" {
  description = "Whether a node has at most one worker. Workers with the backend uv need this, because they share the range of users."
  type        = bool
  default     = true
}

job "python-executor-workers" {
  type        = "service"
  datacenters = ["*"]

  group "worker" {
    count = var.count

    # The bounds of nomad job scale. The Nomad Autoscaler takes them, too; then add a policy, for example on the gauge of waiting
    # executions in /metrics of the server.
    scaling {
      enabled = true
      min     = 1
      max     = 100

      # policy {
      #   cooldown = "1m"
      #   check "waiting" {
      #     source = "prometheus"
      #     query  = "python_executor_queue_length"
      #     strategy "threshold" {
      #       lower_bound = 1
      #       delta       = 1
      #     }
      #   }
      # }
    }

    # A new version replaces one worker after the other. The old worker drains before it ends.
    update {
      max_parallel      = 1
      health_check      = "checks"
      min_healthy_time  = "5s"
      healthy_deadline  = "2m"
      progress_deadline = "15m"
      auto_revert       = true
    }

    # The same when a node is drained.
    migrate {
      max_parallel     = 1
      health_check     = "checks"
      min_healthy_time = "5s"
      healthy_deadline = "2m"
    }

    # A node that is out of reach for a minute gets a substitute elsewhere. If it returns, its worker goes on, and the substitute ends.
    disconnect {
      lost_after = "1m"
      replace    = true
      reconcile  = "keep_original"
    }

    restart {
      attempts = 5
      interval = "2m"
      delay    = "2s"
      mode     = "delay"
    }

    reschedule {
      delay          = "5s"
      delay_function = "exponential"
      max_delay      = "2m"
      unlimited      = true
    }

    constraint {
      operator = "distinct_hosts"
      value    = var.one_per_node
    }

    constraint {
      attribute = "${attr.kernel.name}"
      value     = "linux"
    }

    network {
      port "worker" {}
    }

    # The server finds the workers by this name (backends.nomad.workers.service).
    service {
      name     = "python-executor-worker"
      provider = var.provider
      port     = "worker"

      # Nomad knows the allocation of its own services. Consul is told.
      meta {
        allocation = "${NOMAD_ALLOC_ID}"
      }

      check {
        type     = "tcp"
        interval = "10s"
        timeout  = "2s"
      }
    }

    task "worker" {
      driver = "raw_exec"

      # SIGTERM drains: the worker refuses new executions, finishes those it has, and hands the rest back after
      # drain_timeout_seconds. Nomad waits no longer than max_kill_timeout of its client (30 seconds, unless set).
      kill_signal  = "SIGTERM"
      kill_timeout = "5m"

      artifact {
        source      = var.binary
        destination = "local/python-executor"
        mode        = "file"
        options {
          checksum = var.checksum
        }
      }

      config {
        command = "local/python-executor"
        args    = ["worker", "--config", "${NOMAD_TASK_DIR}/worker.yaml"]
      }

      template {
        destination = "local/worker.yaml"
        data        = <<-EOT
          data_dir: {{ env "NOMAD_TASK_DIR" }}/data
          backend: docker
          backends:
            docker: {host: "${var.docker}", default_image: "${var.image}"}
          worker:
            bind: {{ env "NOMAD_ADDR_worker" }}
            max_concurrent: ${var.slots}
            drain_timeout_seconds: 240
            tls:
              ca_cert: ${var.certificates}/ca.pem
              cert: ${var.certificates}/worker.pem
              key: ${var.certificates}/worker-key.pem
        EOT
      }

      # Certificates from Vault in place of files. The worker reads changed files again, so nothing is restarted. The paths above
      # become {{ env "NOMAD_SECRETS_DIR" }}/ca.pem, worker.pem and worker-key.pem. The task logs in to Vault by its workload identity:
      # the servers of Nomad need vault { default_identity { aud = ["vault.io"] } }, and Vault a JWT method that trusts Nomad's keys.
      #
      # vault {
      #   role = "python-executor-worker"
      # }
      # template {
      #   destination = "secrets/worker.pem"
      #   change_mode = "noop"
      #   data        = <<-EOT
      #     {{ with pkiCert "pki/issue/worker" "common_name=worker.python-executor" "ttl=24h" }}{{ .Cert }}
      #     {{ .CA | writeToFile (print (env "NOMAD_SECRETS_DIR") "/ca.pem") "" "" "0600" }}
      #     {{ .Key | writeToFile (print (env "NOMAD_SECRETS_DIR") "/worker-key.pem") "" "" "0600" }}{{ end }}
      #   EOT
      # }
      #
      # Certificates by the workload identity: Nomad signs a token for this task, and a certificate authority that trusts Nomad's keys
      # (/.well-known/jwks.json) exchanges it for a certificate. A sidecar that renews it needs the file secrets/nomad_ca.jwt.
      #
      # identity {
      #   name        = "ca"
      #   aud         = ["https://ca.example.org"]
      #   file        = true
      #   ttl         = "1h"
      #   change_mode = "noop"
      # }

      # What Nomad reserves for one worker, and lets it use. Containers run beside it: leave room for slots times memory_mb plus
      # disk_mb of the limits, because the files of programs are in memory. With the backend uv they count as the worker's own.
      resources {
        cpu    = 1000
        memory = 1024
      }
    }
  }
}
