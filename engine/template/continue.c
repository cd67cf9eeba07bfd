/* continue_final_message: the prompt ends with the text of the last message.
 *
 * A tag is appended to that text, and the rendering is cut where the tag comes out. It is rendered
 * twice, with tags of one length that differ in each character but the last, a blank: whatever a template
 * makes of a tag before the cut (a second copy, a part, another spelling) differs between the two, and
 * the request is refused. So nothing of a tag ever reaches a prompt. Called by template.c. */
#include <string.h>

#include "engine/template/interp.h"

/* The first is the one of transformers. The blank at the end shows whether the template trims the
 * message. */
static const char *const tags[] = {
    [TM_TAG_CUT] = "CONTINUE_FINAL_MESSAGE_TAG ",
    [TM_TAG_CHECK] = "TAIL_OF_THE_LAST_UTTERANCE ",
};

static struct tm_val tagged(struct tmpl *c, struct tm_val text, enum tm_tag tag)
{
    return tm_string(tm_concat(c, text.s, tm_str_lit(c, tags[tag])));
}

const struct tm_str *tm_tag_final(struct tmpl *c, struct tm_list *messages, enum tm_tag tag)
{
    if (!messages->n)
        tm_refuse(c, "continue_final_message",
                  "continue_final_message is set but there are no messages");
    struct tm_dict *last = messages->v[messages->n - 1].dict;
    const struct tm_val *content = tm_member(c, last, "content");
    if (!content || content->type == TM_NONE)
        tm_refuse(c, "continue_final_message",
                  "continue_final_message is set but the final message has no content to continue");
    if (!c->tpl->mentions_content)
        tm_refuse(c, "continue_final_message",
                  "continue_final_message is set but the chat template reads no content");
    if (content->type == TM_STR) {
        const struct tm_str *text = content->s;
        tm_dict_set(c, last, tm_key(c, "content"), tagged(c, *content, tag));
        return text;
    }
    const struct tm_list *parts = content->type == TM_LIST ? content->list : tm_list_new(c, 0);
    for (uint32_t i = parts->n; i-- > 0;) {
        struct tm_val part = parts->v[i];
        const struct tm_val *text = part.type == TM_DICT ? tm_member(c, part.dict, "text") : NULL;
        if (!text || text->type != TM_STR)
            continue;
        const struct tm_str *s = text->s;
        tm_dict_set(c, part.dict, tm_key(c, "text"), tagged(c, *text, tag));
        return s;
    }
    tm_refuse(c, "continue_final_message",
              "continue_final_message is set but the final message holds no text to continue");
}

/* Start of the white space at the end of s that came from the message: at most as much as its text ends
 * with, and no byte that the template itself wrote. */
static uint32_t blank_of_message(struct tmpl *c, const struct tm_str *s, const struct tm_str *text)
{
    uint32_t n_blank = text->len - tm_strip(c, text, NULL, false, true)->len;
    uint32_t start = tm_strip(c, s, NULL, false, true)->len, cursor = 0;
    if (s->len - start > n_blank)
        start = s->len - n_blank;
    for (uint32_t i = start; i < s->len; i++)
        if (tm_trusted_at(s, i, &cursor))
            start = i + 1;
    while (start < s->len && ((unsigned char)s->p[start] & 0xc0) == 0x80)
        start++;
    return start;
}

/* Does the blank that ends the tag still follow it, as the message's own? */
static bool tag_is_whole(const struct tm_str *s, uint32_t end, const char *tag)
{
    uint32_t cursor = 0;
    return end < s->len && s->p[end] == tag[strlen(tag) - 1] && !tm_trusted_at(s, end, &cursor);
}

const struct tm_str *tm_cut_final(struct tmpl *c, const struct tm_str *s, const struct tm_str *text,
                                  enum tm_tag tag)
{
    const struct tm_str *bare = tm_strip(c, tm_str_lit(c, tags[tag]), NULL, true, true);
    const struct tm_str *stripped = tm_strip(c, text, NULL, true, true);
    int64_t at = tm_find(c, s, bare, 0, s->len, true);
    if (at < 0 || tm_find(c, s, stripped, 0, s->len, false) < 0)
        tm_refuse(c, "continue_final_message",
                  "continue_final_message is set but the final message does not appear in the chat "
                  "after applying the chat template");
    bool trimmed = !tag_is_whole(s, (uint32_t)at + bare->len, tags[tag]);
    s = tm_sub(c, s, 0, (uint32_t)at);
    /* A blank message adds nothing even where the template would keep it. */
    return trimmed || !stripped->len ? tm_sub(c, s, 0, blank_of_message(c, s, text)) : s;
}
