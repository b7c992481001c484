# The server as a job, with the Nomad backend (docs/nomad.md).
#
#   nomad job run -namespace python-executor -var node=NAME -var token_sha256=HEX server.nomad.hcl
#
# The server keeps executions and files in a folder of one node, so there is one server, and it stays on its node. Its rights come from
# its workload identity, so it has no token to keep:
#
#   nomad acl policy apply -namespace python-executor -job python-executor python-executor-workers policies/workers-mode.policy.hcl

variable "node" {
  description = "The name of the node with the data folder."
  type        = string
  default     = "node-1"
}

variable "data_dir" {
  description = "The folder of that node with executions and files."
  type        = string
  default     = "/var/lib/python-executor"
}

variable "mode" {
  description = "The mode of the Nomad backend: job or workers."
  type        = string
  default     = "workers"

  validation {
    condition     = var.mode == "job" || var.mode == "workers"
    error_message = "The mode must be job or workers."
  }
}

variable "token_sha256" {
  description = "The SHA-256 of the bearer token of the HTTP API, in hex (printf %s \"$TOKEN\" | sha256sum)."
  type        = string
  default     = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
}

variable "binary" {
  description = "Where the node fetches the python-executor binary."
  type        = string
  default     = "https://downloads.example.org/python-executor"
}

variable "checksum" {
  description = "The checksum of the binary: sha256:HEX."
  type        = string
  default     = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
}

variable "certificates" {
  description = "The folder of the node with ca.pem, server.pem and server-key.pem, for the mode workers. The certificate has the DNS name server.python-executor."
  type        = string
  default     = "/etc/python-executor/tls"
}

variable "image" {
  description = "The image of requests that name none, in the mode job."
  type        = string
  default     = "python:3.12-slim"
}

job "python-executor" {
  type        = "service"
  datacenters = ["*"]

  group "server" {
    count = 1

    constraint {
      attribute = "${node.unique.name}"
      value     = var.node
    }

    # Two servers must not share a data folder, so the old one ends before the new one starts. Queued executions wait for it.
    update {
      max_parallel     = 1
      health_check     = "checks"
      min_healthy_time = "5s"
      healthy_deadline = "2m"
      auto_revert      = true
    }

    # The folder is on this node, so a substitute elsewhere would have none.
    disconnect {
      lost_after = "24h"
      replace    = false
    }

    network {
      port "http" {
        static = 8080
      }
      # Nomad's clients fetch the runner and the input of jobs here (mode job).
      port "transfer" {
        static = 8091
      }
    }

    service {
      name     = "python-executor"
      provider = "nomad"
      port     = "http"

      check {
        type     = "http"
        path     = "/readyz"
        interval = "10s"
        timeout  = "5s"
      }
    }

    task "server" {
      driver       = "raw_exec"
      kill_signal  = "SIGTERM"
      kill_timeout = "1m"

      # The token of Nomad's API, which the agent serves on a socket in the secrets folder.
      identity {
        file = true
      }

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
        args    = ["serve", "--config", "${NOMAD_TASK_DIR}/server.yaml"]
      }

      # A change of the file takes effect without a restart.
      template {
        destination = "local/server.yaml"
        change_mode = "noop"
        data        = <<-EOT
          data_dir: ${var.data_dir}
          http:
            bind: {{ env "NOMAD_ADDR_http" }}
            tokens: [{owner: admin, sha256: ${var.token_sha256}, scopes: [exec, read, admin]}]
          backend: nomad
          backends:
            nomad:
              mode: ${var.mode}
              address: unix://{{ env "NOMAD_SECRETS_DIR" }}/api.sock
              token_file: {{ env "NOMAD_SECRETS_DIR" }}/nomad_token
              namespace: {{ env "NOMAD_NAMESPACE" }}
              job:
                default_image: "${var.image}"
                transfer:
                  listen: {{ env "NOMAD_ADDR_transfer" }}
                  url: http://{{ env "NOMAD_ADDR_transfer" }}
              workers:
                tls:
                  ca_cert: ${var.certificates}/ca.pem
                  cert: ${var.certificates}/server.pem
                  key: ${var.certificates}/server-key.pem
        EOT
      }

      resources {
        cpu    = 1000
        memory = 512
      }
    }
  }
}
