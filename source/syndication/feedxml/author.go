package feedxml

import (
	"bytes"
	"encoding/xml"
	"strings"
)

const (
	// mostAuthors is the maximum number of authors of a document.
	mostAuthors = 10
	// longestAuthor is the maximum length of an author element, in bytes.
	longestAuthor = 1 << 10
)

// readAuthor returns an author of a feed as "Name <a@b.example>", or only the name or
// the mail address if the other is missing.
func readAuthor(content []byte) string {
	if len(content) > longestAuthor {
		return ""
	}
	d := xml.NewDecoder(bytes.NewReader(content))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var name, email, in string
	for {
		token, err := d.RawToken()
		if err != nil {
			break
		}
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local
		case xml.EndElement:
			in = ""
		case xml.CharData:
			switch in {
			case "name":
				name += string(token)
			case "email":
				email += string(token)
			}
		}
	}
	name, email = strings.TrimSpace(name), strings.TrimSpace(email)
	if name != "" && email != "" {
		return name + " <" + email + ">"
	}
	return name + email
}
