// Package docs holds the documents that the program reads.
package docs

import (
	_ "embed"
	"regexp"
	"strings"
)

// URL is where the pages of the documentation are read. Errors name pages by it, since the program is installed
// without a clone.
const URL = "https://github.com/feedbridge/feedbridge/blob/main/docs/"

// Configuration is the page configuration.md, whose tables describe every setting.
//
//go:embed configuration.md
var Configuration string

// Consuming is the page consuming.md, whose tables describe every header of a message.
//
//go:embed consuming.md
var Consuming string

// CloudEvents is the page consuming-cloudevents.md, whose table describes the attributes of events.
//
//go:embed consuming-cloudevents.md
var CloudEvents string

// EntrySchema is the JSON Schema of the messages of Atom and RSS feeds. Its $id has the version.
//
//go:embed entry.schema.json
var EntrySchema []byte

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// Plain returns a text of a table without the marks of Markdown.
func Plain(markdown string) string {
	return strings.ReplaceAll(link.ReplaceAllString(markdown, "$1"), "`", "")
}
