package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	streamEvery = time.Second
	streamWord  = 15 * time.Second // a word at least this often, so that whatever is in between keeps the connection
)

// stream sends what fragment renders, each second when it has changed, until the reader is gone.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, event string, fragment func(ctx context.Context) ([]byte, error)) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	var before []byte
	said := time.Now()
	for {
		text, err := fragment(r.Context())
		if r.Context().Err() != nil {
			return
		}
		if err != nil {
			text, err = s.pages.render("trouble", err.Error())
		}
		if err == nil && !bytes.Equal(text, before) || time.Since(said) > streamWord {
			before, said = text, time.Now()
			if _, err := w.Write(message(event, text)); err != nil {
				return
			}
			if err := control.Flush(); err != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// message is one event of a stream: each line of the text is a data line.
func message(event string, text []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", event)
	for line := range bytes.Lines(text) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}

func (s *Server) queuesEvents(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, "queues", func(ctx context.Context) ([]byte, error) {
		all, err := s.queuesPage(r.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return s.pages.render("queues", all)
	})
}

func (s *Server) queueEvents(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, "queue", func(ctx context.Context) ([]byte, error) {
		v, err := s.look(ctx, r.PathValue("queue"))
		if err != nil {
			return nil, err
		}
		return s.pages.render("overview", v)
	})
}
