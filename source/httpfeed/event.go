package httpfeed

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/jsonpage"
	"github.com/feedbridge/feedbridge/message"
)

// readEvent returns the entity of an event (CloudEvents 1.0.2, JSON format, section 3). Its headers are the attributes
// of the event under their names; those that have a name in feeds have it besides. asked is the ID as the server has it,
// for the next request.
func (s *Source) readEvent(it jsonpage.Item, seen *violations) (e feed.Entity, asked string, err error) {
	members, repeated := jsonpage.Members(it.Raw)
	where := s.redact.URL(s.cfg.URL)
	asked = memberText(members["id"])
	id := message.SafeValue(asked)
	blank := strings.TrimSpace(asked) == ""
	switch {
	case members == nil:
		return feed.Entity{}, "", feed.Permanent(fmt.Errorf("%s: the event at byte %d is no object; the provider has to correct it", where, it.Offset))
	case it.Length == 0 && members["specversion"] == nil && members["type"] == nil && members["source"] == nil:
		// Detect takes an empty list for a feed, and many APIs begin with one.
		return feed.Entity{}, "", feed.Permanent(fmt.Errorf("%s: the item at byte %d is no CloudEvent: it has no specversion, type or source; "+
			"the url leads to another API, which this format cannot read", where, it.Offset))
	case blank && it.Length > 0:
		return feed.Entity{}, "", feed.Permanent(fmt.Errorf("%s: an event of %d bytes is above limits.entity (%d), and its beginning has no id; raise the limit", where, it.Length, s.cfg.Limits.Entity))
	case blank:
		return feed.Entity{}, "", feed.Permanent(fmt.Errorf("%s: the event at byte %d has no id, so it cannot be told from others; the provider has to give it one", where, it.Offset))
	}
	quoted := s.redact.Excerpt(id, longestQuote)
	for _, name := range repeated {
		seen.add(kindRepeatedMember, "the event %s has the member %q twice; the last one counts", quoted, name)
	}
	if _, n := jsonpage.MarkInvalid(it.Raw); n > 0 && it.Length == 0 {
		seen.add(kindInvalidText, "the event %s has half a surrogate pair, or a byte that is not UTF-8; in its id and headers that is written as %%uD800 or %%FF", quoted)
	}
	e = feed.Entity{ID: id, Page: where, Length: it.Length}
	method := memberText(members["method"])
	switch op := feed.Operation(strings.ToUpper(method)); op {
	case "":
		e.Op = feed.Put
	case feed.Put, feed.Patch, feed.Delete:
		e.Op = op
	default:
		return feed.Entity{}, "", feed.Permanent(fmt.Errorf("%s: the event %s has the method %q; want PUT or DELETE", where, quoted, method))
	}
	if version := memberText(members["specversion"]); version != "1.0" {
		seen.add(kindBadVersion, "the event %s has the specversion %q, and is read as one of 1.0", quoted, version)
	} else {
		delete(members, "specversion")
	}
	written := memberText(members["time"])
	at, _, ok := message.ParseDate(written)
	if !ok && written != "" {
		seen.add(kindBadTime, "the event %s has the time %q", quoted, written)
	}
	if e.Modified = at.UTC(); !ok {
		e.Modified, e.Made = s.batch.resp.Date.UTC(), message.LastModified
	}
	contentType := memberText(members["datacontenttype"])
	if e.Length > 0 {
		e.Body = it.Raw
	} else {
		if e.Body, err = body(members, contentType); err != nil {
			return feed.Entity{}, "", feed.Permanent(fmt.Errorf("%s: the event %s: %w", where, quoted, err))
		}
		if members["data"] != nil && members["data_base64"] != nil {
			seen.add(kindTwoBodies, "the event %s has data and data_base64; data counts", quoted)
		}
		if contentType == "" && members["data"] != nil && string(members["data"]) != "null" {
			contentType = "application/json" // as CloudEvents has it
		}
	}
	e.Header = feed.Header{{Name: message.ContentID, Value: e.ID}}
	if contentType != "" {
		e.Header = append(e.Header, feed.Field{Name: message.ContentType, Value: message.SafeValue(strings.TrimSpace(contentType))})
	}
	e.Header = append(e.Header,
		feed.Field{Name: message.LastModified, Value: message.FormatDate(e.Modified)},
		feed.Field{Name: message.OperationType, Value: message.FormatOperation(e.Op)},
	)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case slices.Contains([]string{"id", "data", "data_base64", "datacontenttype", "method"}, name), string(members[name]) == "null":
		case !message.IsAttribute(name):
			seen.add(kindBadAttributeName, "the event %s has the attribute %q, whose name is not of a-z and 0-9; it is left out", quoted, name)
		default:
			e.Header = append(e.Header, feed.Field{Name: name, Value: message.SafeValue(memberText(members[name]))})
		}
	}
	return e, asked, nil
}

// body returns the data of an event: a JSON value as it stands, or a string that has other data.
func body(members map[string]json.RawMessage, contentType string) ([]byte, error) {
	data := members["data"]
	var text string
	switch {
	case len(data) == 0 && members["data_base64"] != nil:
		b, err := base64.StdEncoding.DecodeString(memberText(members["data_base64"]))
		if err != nil {
			return nil, fmt.Errorf("data_base64 is no base64: %w", err)
		}
		return b, nil
	case len(data) == 0 || string(data) == "null":
		return nil, nil
	case !message.IsJSON(contentType) && json.Unmarshal(data, &text) == nil:
		return []byte(text), nil
	}
	return data, nil
}

// memberText returns a string, or another value as it is written, as [jsonpage.MarkInvalid] marks it.
func memberText(raw json.RawMessage) string {
	raw, _ = jsonpage.MarkInvalid(raw)
	var text string
	if json.Unmarshal(raw, &text) == nil || len(raw) == 0 {
		return text
	}
	return string(raw)
}
