package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// actionWithin is how long a change may take; one of all dead jobs goes on in bounded steps.
const actionWithin = time.Minute

// action changes a queue as a form says. It returns what was done, for the log, and where to go next.
type action func(ctx context.Context, q *queue.Queue, r *http.Request) (done, next string, err error)

// addActions adds the routes that change something. Each change is recorded in the queue with its reason and who made it, and in
// the log.
func (s *Server) addActions(mux *http.ServeMux) {
	post := func(path string, act action) {
		mux.HandleFunc("POST /q/{queue}/"+path, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, mostBody)
			if err := r.ParseForm(); err != nil {
				s.fail(w, r, badRequest{err})
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), actionWithin)
			defer cancel()
			q, err := s.queue(r.PathValue("queue"))
			if err != nil {
				s.fail(w, r, err)
				return
			}
			done, next, err := act(ctx, q, r)
			s.log.Info("change", "queue", q.Name(), "user", user(r), "what", cmp.Or(done, path), "reason", r.PostFormValue("reason"), "error", err)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			http.Redirect(w, r, s.opts.BasePath+"/q/"+url.PathEscape(q.Name())+next, http.StatusSeeOther)
		})
	}
	post("pause", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		_, err := q.Pause(ctx, why(r))
		return "pause", "", err
	})
	post("resume", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		_, err := q.Resume(ctx, why(r))
		return "resume", "", err
	})
	post("limit", setLimit)
	post("reset", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		name := r.PostFormValue("name")
		if name == "" {
			return "reset of the queue's limit", "", q.ResetLimit(ctx, why(r))
		}
		return "reset of limit " + name, "", q.ResetNamedLimit(ctx, name, why(r))
	})
	post("close", closeFor)
	post("reopen", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		if key := r.PostFormValue("key"); key != "" {
			return "reopen " + key, "", q.ReopenKey(ctx, key, r.PostFormValue("value"), why(r))
		}
		return "reopen", "", q.Reopen(ctx, why(r))
	})
	post("dead/redrive", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		n, err := q.RedriveDead(ctx, queue.Reason(r.PostFormValue("why")))
		return fmt.Sprintf("redrive of %d dead jobs", n), "/jobs?state=dead", err
	})
	post("dead/delete", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		n, err := q.DeleteDead(ctx, queue.Reason(r.PostFormValue("why")))
		return fmt.Sprintf("delete of %d dead jobs", n), "/jobs?state=dead", err
	})
	post("jobs/{id}/redrive", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		return "redrive of job " + r.PathValue("id"), "/jobs?state=dead", q.Redrive(ctx, r.PathValue("id"))
	})
	post("jobs/{id}/run", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		return "run of job " + r.PathValue("id"), "/jobs?state=delayed", q.RunNow(ctx, r.PathValue("id"))
	})
	post("jobs/{id}/delete", func(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
		return "delete of job " + r.PathValue("id"), "", q.Delete(ctx, r.PathValue("id"))
	})
}

// why is the reason of a change as the queue keeps it: who, and what they said.
func why(r *http.Request) string {
	return cmp.Or(user(r), "dashboard") + ": " + cut(r.PostFormValue("reason"), 200)
}

func setLimit(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
	name := r.PostFormValue("name")
	most, err := strconv.ParseInt(r.PostFormValue("max"), 10, 64)
	if err != nil || most < 1 {
		return "", "", badRequest{fmt.Errorf("max is %q; want a whole number, 1 or more", cut(r.PostFormValue("max"), 40))}
	}
	limit := limiter.Limit{Max: most}
	if text := r.PostFormValue("window"); text != "" {
		if limit.Window, err = time.ParseDuration(text); err != nil {
			return "", "", badRequest{fmt.Errorf("window is %q; want a time such as 1m or 1s", cut(text, 40))}
		}
	}
	if name == "" {
		before, err := q.SetLimit(ctx, limit, why(r))
		return fmt.Sprintf("limit %s, was %s", limit, before), "", wrong(err)
	}
	named, err := q.NamedLimit(ctx, name)
	if err != nil {
		return "", "", err
	}
	if named.Algorithm == queue.Concurrency {
		limit.Window = 0
	}
	before, err := q.SetNamedLimit(ctx, queue.NamedLimit{Name: name, Limit: limit}, why(r))
	return fmt.Sprintf("limit %s %s, was %s", name, limit, before), "", wrong(err)
}

// wrong makes a limit that nobody can have a bad request.
func wrong(err error) error {
	if errors.Is(err, limiter.ErrBadLimit) {
		return badRequest{err}
	}
	return err
}

func closeFor(ctx context.Context, q *queue.Queue, r *http.Request) (string, string, error) {
	d, err := time.ParseDuration(r.PostFormValue("for"))
	if err != nil || d <= 0 {
		return "", "", badRequest{fmt.Errorf("for is %q; want a time such as 30s or 5m", cut(r.PostFormValue("for"), 40))}
	}
	if key := r.PostFormValue("key"); key != "" {
		_, err = q.CloseKey(ctx, key, r.PostFormValue("value"), d, why(r))
		return fmt.Sprintf("close of %s=%s for %v", key, r.PostFormValue("value"), d), "", err
	}
	_, err = q.Close(ctx, d, why(r))
	return fmt.Sprintf("close for %v", d), "", err
}
