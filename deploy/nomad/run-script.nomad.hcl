# A parameterised job: each dispatch sends a script to the server and waits for its result. Its log and exit code are the script's.
#
#   nomad job run -namespace python-executor run-script.nomad.hcl
#   nomad job dispatch -namespace python-executor -meta owner=nightly run-script report.py
#
# Nomad keeps at most 16 KiB of payload. Larger inputs go to the server directly.

variable "server" {
  description = "The server's URL."
  type        = string
  default     = "http://127.0.0.1:8080"
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

variable "token_variable" {
  description = "The Nomad variable whose item token is the bearer token of the server."
  type        = string
  default     = "nomad/jobs/run-script"
}

job "run-script" {
  type        = "batch"
  datacenters = ["*"]

  parameterized {
    payload       = "required"
    meta_optional = ["owner"]
  }

  group "run" {
    # A script that failed is not run again by Nomad.
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "run" {
      driver = "raw_exec"
      user   = "nobody"

      dispatch_payload {
        file = "script.py"
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
        args    = ["run", "--server", var.server, "${NOMAD_TASK_DIR}/script.py"]
      }

      template {
        destination = "secrets/token.env"
        env         = true
        data        = <<-EOT
          {{ with nomadVar "${var.token_variable}" }}PYEXEC_TOKEN={{ .token }}{{ end }}
        EOT
      }

      resources {
        cpu    = 100
        memory = 128
      }
    }
  }
}
