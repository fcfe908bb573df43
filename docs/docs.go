// Package docs holds the documents that the program reads.
package docs

import _ "embed"

// Configuration is the page configuration.md, whose tables describe every setting.
//
//go:embed configuration.md
var Configuration string
