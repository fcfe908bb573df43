// Package docs holds the documents that the program reads.
package docs

import _ "embed"

// Configuration is the page configuration.md, whose tables describe every setting.
//
//go:embed configuration.md
var Configuration string

// EntrySchema is the JSON Schema of the messages of Atom and RSS feeds. Its $id has the version.
//
//go:embed entry.schema.json
var EntrySchema []byte
