package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

type junitSuite struct {
	XMLName    xml.Name        `xml:"testsuite"`
	Name       string          `xml:"name,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Error   *junitMessage `xml:"error,omitempty"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report in the form of JUnit, with a test for each requirement. One that failed and does
// not count is skipped.
func (r *Report) WriteJUnit(w io.Writer, redact *safetext.Redactor, strict bool) error {
	const longest = 1000 // characters of a text
	clip := func(s string) string { return redact.Clip(s, longest) }
	suite := junitSuite{
		Name: clip("feedbridge conformance " + r.URL), Timestamp: r.Checked.Format(time.RFC3339),
		Properties: []junitProperty{{"feedbridge", r.Version}}, Cases: []junitCase{{Class: "feed", Name: "the feed can be read"}},
	}
	if r.Error != "" {
		suite.Errors, suite.Cases[0].Error = 1, &junitMessage{Message: clip(r.Error)}
	}
	for _, res := range r.Requirements {
		class, _, _ := strings.Cut(res.ID, "/")
		c := junitCase{Class: class, Name: fmt.Sprintf("%s %s: %s", res.ID, res.Level, res.Rule), Output: fmt.Sprintf("%s\n%s\n%s", res.Section, res.Specification, res.Case)}
		var text strings.Builder
		for _, e := range res.Evidence {
			fmt.Fprintf(&text, "%s\n  %s\n", clip(e.Page), clip(e.Detail))
		}
		switch {
		case res.Outcome == Failed && res.binds(strict):
			suite.Failures++
			c.Failure = &junitMessage{fmt.Sprintf("violated %d times (%s)", res.Count, res.Section), text.String()}
		case res.Outcome == Failed:
			suite.Skipped++
			c.Skipped = &junitMessage{fmt.Sprintf("violated %d times, which does not count for a %s", res.Count, res.Level), text.String()}
		case res.Outcome == NotTested:
			suite.Skipped++
			c.Skipped = &junitMessage{Message: clip("not tested: " + res.Reason)}
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Tests = len(suite.Cases)
	b, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, b)
	return err
}
