package main

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"regexp"
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
		"case 24: a day":                 {media, page(head + fmt.Sprintf(item, `,"date_published":"2020-01-01"`)), "json-feeds/24", conformance.Failed, `date_published "2020-01-01"`, exitFailed, ""},
		"case 24: a date of RFC 3339":    {media, page(head + fmt.Sprintf(item, `,"date_modified":"2020-01-01t00:00:00z"`)), "json-feeds/24", conformance.Passed, "", exitDone, ""},
		"no dates":                       {media, page(head + fmt.Sprintf(item, "")), "json-feeds/24", conformance.NotTested, "nothing", exitDone, ""},
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
		"case 17: a day":                {media, map[string]string{"/": event("1", `,"source":"s","type":"t","time":"2020-01-01"`), "/?lastEventId=1": `[]`}, "json-feeds/17", conformance.Failed, `time "2020-01-01"`, exitFailed, ""},
		"no events":                     {media, map[string]string{"/": `[]`}, "json-feeds/12", conformance.Passed, "", exitDone, ""},
	})
}

// TestReportHasNoInventedTime checks that the time which a source makes for an entity without one is not reported.
func TestReportHasNoInventedTime(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(producer{media: "application/cloudevents-batch+json", pages: map[string]string{
		"/": `[{"specversion":"1.0","id":"1","source":"s","type":"t"}]`, "/?lastEventId=1": `[]`,
	}})
	t.Cleanup(server.Close)
	for _, flags := range [][]string{{"--json"}, nil} {
		var out, errs bytes.Buffer
		code := runProgram(append([]string{"conformance", server.URL + "/"}, flags...), nil, nil, &out, &errs)
		if named := regexp.MustCompile(`"modified"|(?m)^first .*\d{4}-`).FindString(out.String()); code != exitDone || named != "" {
			t.Errorf("exit code %d, %q, %s\n%s", code, named, &errs, &out)
		}
	}
}
