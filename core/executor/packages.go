package executor

import "strings"

// packageOf maps Python modules to the packages that have them, where the names differ.
var packageOf = map[string]string{
	"attr": "attrs", "bs4": "beautifulsoup4", "Crypto": "pycryptodome", "cv2": "opencv-python-headless", "dateutil": "python-dateutil",
	"distutils": "setuptools", "docx": "python-docx", "dotenv": "python-dotenv", "fitz": "pymupdf", "git": "gitpython", "google": "protobuf",
	"google.protobuf": "protobuf", "igraph": "python-igraph", "jose": "python-jose", "jwt": "pyjwt", "kafka": "kafka-python", "ldap": "python-ldap",
	"Levenshtein": "levenshtein", "magic": "python-magic", "mpl_toolkits": "matplotlib", "MySQLdb": "mysqlclient", "OpenSSL": "pyopenssl",
	"PIL": "pillow", "pkg_resources": "setuptools", "pptx": "python-pptx", "psycopg2": "psycopg2-binary", "PyPDF2": "pypdf2", "serial": "pyserial",
	"skimage": "scikit-image", "sklearn": "scikit-learn", "slugify": "python-slugify", "telegram": "python-telegram-bot", "umap": "umap-learn",
	"usb": "pyusb", "yaml": "pyyaml", "zmq": "pyzmq",
}

// PackageOf returns the package that probably has a Python module: that of a short list, or the first word of its dotted name. Packages of
// Google are named by their whole path (google.cloud.storage: google-cloud-storage).
func PackageOf(module string) string {
	if p := packageOf[module]; p != "" {
		return p
	}
	top, _, nested := strings.Cut(module, ".")
	if top == "google" && nested {
		return strings.NewReplacer(".", "-", "_", "-").Replace(module)
	}
	if p := packageOf[top]; p != "" {
		return p
	}
	return strings.ReplaceAll(top, "_", "-")
}

// NoNPM says what JavaScript has in place of npm packages, for the end of a message.
const NoNPM = "npm packages cannot be installed, and package.json is not read. Use Node's own modules (fs, crypto, node:test, fetch), " +
	"write the module to a file and require('./name.js'), or use Python, whose packages can be installed"
