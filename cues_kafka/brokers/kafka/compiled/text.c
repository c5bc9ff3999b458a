/* Text of UTF-8, and bytes that grow. */

#include "text.h"
#include <string.h>

int grow(grown_t *grown, size_t more) {
    size_t room = grown->room ? grown->room : 4096;
    char *data;
    if (grown->data != NULL && grown->room - grown->size >= more)
        return 0;
    while (room - grown->size < more)
        room *= 2;
    if ((data = PyMem_Realloc(grown->data, room)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    grown->data = data, grown->room = room;
    return 0;
}

int is_utf8(const unsigned char *at, const unsigned char *end) {
    while (at < end) {
        unsigned char first = *at++, least = 0x80, most = 0xBF;
        int more;
        if (first < 0x80)
            continue;
        if (first < 0xC2 || first > 0xF4)
            return 0;
        more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
        if (end - at < more)
            return 0;
        if (first == 0xE0)
            least = 0xA0; /* else it would be shorter */
        else if (first == 0xED)
            most = 0x9F; /* surrogates */
        else if (first == 0xF0)
            least = 0x90;
        else if (first == 0xF4)
            most = 0x8F; /* the end of Unicode */
        for (; more > 0; more--, least = 0x80, most = 0xBF)
            if (*at < least || *at++ > most)
                return 0;
    }
    return 1;
}
