package main

import (
	"fmt"
	"testing"

	"github.com/feedbridge/feedbridge/internal/conformance"
)

func TestConformanceOfItems(t *testing.T) {
	const media, head = "application/feed+json", `{"version":"https://jsonfeed.org/version/1.1","title":"t",`
	const item = `"items":[{"id":"1","content_text":"x"%s}]}`
	page := func(s string) map[string]string { return map[string]string{"/": s} }
	testProducers(t, map[string]producer{
		"the second page has no title":   {media, map[string]string{"/": head + `"next_url":"/2",` + fmt.Sprintf(item, ""), "/2": `{"version":"https://jsonfeed.org/version/1.1","items":[]}`}, "json-feeds/20", conformance.Failed, "/2", exitFailed, ""},
		"the second page has no content": {media, map[string]string{"/": head + `"next_url":"/2",` + fmt.Sprintf(item, ""), "/2": head + `"items":[{"id":"2"}]}`}, "json-feeds/23", conformance.Failed, "/2", exitFailed, ""},
		"no version":                     {media, page(`{"title":"t",` + fmt.Sprintf(item, "")), "json-feeds/20", conformance.Failed, "version is a string: false", exitFailed, "JSON"},
		"case 36: tags are no list":      {media, page(head + fmt.Sprintf(item, `,"tags":"a"`)), "json-feeds/36", conformance.Failed, "in item 0 tags is a", exitFailed, ""},
		"case 36: a bare attachment":     {media, page(head + fmt.Sprintf(item, `,"attachments":[{"url":"/a"}]`)), "json-feeds/36", conformance.Failed, "mime_type", exitFailed, ""},
		"no next_url":                    {media, page(head + fmt.Sprintf(item, "")), "json-feeds/27", conformance.NotTested, "no next_url", exitDone, ""},
	})
}

func TestConformanceOfEvents(t *testing.T) {
	const media = "application/cloudevents-batch+json"
	event := func(id, more string) string {
		return fmt.Sprintf(`[{"specversion":"1.0","id":"%s"%s}]`, id, more)
	}
	testProducers(t, map[string]producer{
		"the second list has no source": {media, map[string]string{"/": event("1", `,"source":"s","type":"t"`), "/?lastEventId=1": event("2", ""), "/?lastEventId=2": `[]`}, "json-feeds/10", conformance.Failed, "event 0, the id \"2\", has no source", exitFailed, ""},
		"no events":                     {media, map[string]string{"/": `[]`}, "json-feeds/12", conformance.Passed, "", exitDone, ""},
	})
}
