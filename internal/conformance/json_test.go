package conformance

import (
	"fmt"
	"net/http"
	"testing"
)

// document answers every request with a document of a media type.
func document(media, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		fmt.Fprint(w, body)
	}
}

func TestJSONFeedsAreProbed(t *testing.T) {
	const version = `{"version":"https://jsonfeed.org/version/1.1",`
	for name, c := range map[string]struct {
		body, media, id string
		outcome         Outcome
		text            string
	}{
		"case 32: another media type": {version + `"title":"t","items":[]}`, "application/json", "json-feeds/32", Failed, "application/json"},
		"case 33: no validators":      {version + `"title":"t","items":[]}`, "application/json", "json-feeds/33", Failed, "neither"},
		"no title":                    {version + `"items":[]}`, "application/feed+json", "json-feeds/20", Failed, "title is a string: false"},
		"a number as id":              {version + `"title":"t","items":[{"id":1}]}`, "application/feed+json", "json-feeds/21", Failed, "the id 1"},
		"no content":                  {version + `"title":"t","items":[{"id":"1"}]}`, "application/feed+json", "json-feeds/23", Failed, "item 0"},
		"a good item":                 {version + `"title":"t","items":[{"id":"1","content_text":""}]}`, "application/feed+json; charset=utf-8", "json-feeds/23", Passed, ""},
		"a good media type":           {version + `"title":"t","items":[]}`, "application/feed+json; charset=utf-8", "json-feeds/32", Passed, ""},
		"a document that breaks off":  {version + `"title":"t","items":[`, "application/feed+json", "json-feeds/20", NotTested, "cannot be parsed"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := probeSite(t, NewReport("", "jsonfeed"), document(c.media, c.body), "/feed")
			r.want(t, c.id, c.outcome, c.text)
		})
	}
}

func TestEventsAreProbed(t *testing.T) {
	const event, media = `[{"specversion":"1.0","id":"1","source":"s","type":"t"}]`, "application/cloudevents-batch+json"
	for name, c := range map[string]struct {
		site    http.HandlerFunc
		id      string
		outcome Outcome
		text    string
	}{
		"lastEventId is ignored":     {document(media, event), "json-feeds/5", Failed, "this event again"},
		"another media type":         {document("application/json", event), "json-feeds/12", Failed, "application/json"},
		"an event without a type":    {document(media, `[{"specversion":"1.0","id":"1","source":"s"}]`), "json-feeds/10", Failed, "type"},
		"no events":                  {document(media, `[]`), "json-feeds/5", NotTested, "no events"},
		"case 34: a tag without 304": {tagged(false), "json-feeds/34", Failed, "answered with 200"},
		"case 34: a tag and 304":     {tagged(true), "json-feeds/34", Passed, ""},
		"lastEventId is honoured":    {behindFirst(event, `[]`), "json-feeds/5", Passed, ""},
		"an error behind the first":  {behindFirst(event, `<html>`), "json-feeds/5", Failed, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := probeSite(t, NewReport("", "http-feeds"), c.site, "/feed")
			r.want(t, c.id, c.outcome, c.text)
		})
	}
}

func tagged(honoured bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !honoured {
			r.Header.Del("If-None-Match")
		}
		page(w, r, "ETag", `"a"`, "Content-Type", "application/cloudevents-batch+json")
	}
}

func behindFirst(first, behind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := first
		if r.URL.Query().Get("lastEventId") != "" {
			body = behind
		}
		document("application/cloudevents-batch+json", body)(w, r)
	}
}

func TestEventsAreCompared(t *testing.T) {
	t.Run("case 35: an event changes", func(t *testing.T) {
		r, checks := NewReport("", "http-feeds"), Checks{}
		crawlOf(new(Pages), r.Format, []string{"1", "x"}).Compare(crawlOf(new(Pages), r.Format, []string{"1", "a"}), r, "feed", checks)
		r.Complete = true
		r.Evaluate(checks)
		r.want(t, "json-feeds/35", Failed, "another one now")
	})
}
